# For t/t32*.t, sourced after ensemble.sh: run scenarios of t/fault for a short time.
chaos() {
	project_python "$PROJECT/t/fault/chaos.py" "$@"
}
