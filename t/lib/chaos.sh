# For t/t32*.t, sourced after ensemble.sh: run scenarios of t/fault for a short time.
chaos() {
	"$SHARNESS_BUILD_DIRECTORY/python" "$PROJECT/t/fault/chaos.py" "$@"
}
