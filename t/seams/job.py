"""The job of all ensembles here: it says what it does in a file, and does what its kind says.

    python -IS job.py GROUP KIND [NAME=VALUE ...]

It appends lines to the file `witness` in its working directory, each written at once: that it has
begun, what it publishes, and how it ends. A file `gate` there, with a number, holds back all jobs
but the first so many that have begun, until it is gone. It imports little, since many of these run.
"""

import errno
import json
import os
import sys
import time

#: Seconds between looks at the gate, and after which a job gives up waiting for it.
_TICK, _PATIENCE = 0.005, 900


class Work:
    """What a job does: its parameters as it was given them, and what it can do."""

    def __init__(self, group, params):
        self.group, self.params = group, params
        self.id = os.environ["FLUX_JOB_ID"]
        #: Its own directory, where that is not the one of the witness.
        self.own = os.curdir
        # Tasks of several workers, which are in one instance, can have one id.
        uri = os.environ.get("FLUX_URI", "")
        self.uri = uri and uri + os.environ.get("FLUX_ENSEMBLE_MEMO", "")

    def note(self, what, **more):
        """Append a line to the witness."""
        line = {"what": what, "id": self.id, "uri": self.uri,
                "group": self.group, "params": self.params, **more}  # fmt: skip
        out = os.open("witness", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(out, (json.dumps(line) + "\n").encode())
        os.close(out)

    def publish(self, **memo):
        """Publish values, as `flux job memo` does; noted first, as the queue may end the job."""
        self.note("memo", memo=memo)
        address = os.environ.get("FLUX_ENSEMBLE_MEMO")
        if address is None:
            import subprocess

            words = [f"{key}={json.dumps(value)}" for key, value in memo.items()]
            subprocess.run(["flux", "job", "memo", self.id, *words], check=True)
            return
        import socket

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.connect(address)
            out.send(json.dumps({"id": int(self.id), "memo": memo}).encode())

    def first(self):
        """Whether no job with these parameters was here before."""
        name = "-".join(["mark", self.group, *self.params.values()]).replace("/", "_")
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL))
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
            return False
        return True

    def wait(self):
        """Wait for the gate."""
        with open("witness") as lines:
            begun = [line for line in lines if '"what": "begin"' in line]
        # Ids of jobs of several members can be the same.
        mine = next(
            number
            for number, line in enumerate(map(json.loads, begun), 1)
            if line["id"] == self.id and line["uri"] == self.uri
        )
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            try:
                with open("gate") as gate:
                    text = gate.read()
            except FileNotFoundError:
                return
            if text and mine <= int(text):
                return
            time.sleep(_TICK)


def loss(x):
    """What a trial at a place publishes."""
    return (x - 0.3) ** 2


def plain(work):
    """Does nothing."""


def fom(work):
    """Publishes its place."""
    work.publish(fom=float(work.params["x"]))


def spoilt(work):
    """Publishes its place, and fails where that is the best one."""
    x = float(work.params["x"])
    work.publish(fom=x)
    return 1 if x >= 5 else 0


def trial(work):
    """Publishes the objective."""
    work.publish(loss=loss(float(work.params["x"])))


def epochs(work):
    """Publishes the objective again and again, as it becomes better."""
    for epoch in (1, 2, 4):
        work.publish(epoch=epoch, loss=loss(float(work.params["x"])) + 1 / epoch)
        time.sleep(0.02)


def once(work):
    """Fails the first time."""
    return 3 if work.first() else 0


def reads(work):
    """Publishes what its input says, which is in its own directory."""
    with open(os.path.join(work.own, "input-" + work.params["x"])) as file:
        work.publish(fom=float(file.read()))


def never(work):
    """Fails every time."""
    return 4


def stiff(work):
    """Publishes its step, and fails where that is too large for its place."""
    step = int(work.params["dt"])
    work.publish(step=step)
    return 3 if step * int(work.params["k"]) > 8 else 0


def late(work):
    """Takes longer than it may."""
    time.sleep(120)


def ill(work):
    """Hangs at one place, the first time."""
    if work.params["x"] == "3" and work.first():
        time.sleep(120)


def course(work):
    """Publishes more values than the one before it waited."""
    for step in (1, 2, 3):
        work.publish(level=step * float(work.params["x"]))


def long(work):
    """Takes as long as it says."""
    time.sleep(0.002 * float(work.params["n"]))


def drifts(work):
    """Publishes an error that is larger from some place on."""
    work.publish(error=0.1 if int(work.params["x"]) < 6 else 9.1)


def replica(work):
    """Publishes the energy of a replica."""
    names = ("temperature", "replica", "round")
    temperature, number, step = (float(work.params[name]) for name in names)
    work.publish(energy=temperature / 50 - 2 * ((number + step) % 3))


def member(work):
    """Publishes the objective of a member of a population, from its own directory."""
    work.publish(loss=loss(float(work.params["x"])))


#: How many directories above its own the witness is, by kind.
ABOVE = {"reads": 1, "member": 2}

KINDS = {
    kind.__name__: kind
    for kind in (
        plain,
        fom,
        spoilt,
        trial,
        epochs,
        once,
        reads,
        never,
        stiff,
        late,
        ill,
        course,
        long,
        drifts,
        replica,
        member,
    )
}


def main():
    """Do what the arguments say."""
    group, kind, *params = sys.argv[1:]
    work = Work(group, dict(one.split("=", 1) for one in params))
    if kind in ABOVE:
        # The witness is that of all.
        work.own = os.getcwd()
        os.chdir(os.sep.join([os.pardir] * ABOVE[kind]))
    work.note("begin")
    if kind == "course":
        work.publish(level=0.0)
    work.wait()
    code = KINDS[kind](work) or 0
    work.note("end", code=code)
    # What the job prints is its output: its parameters.
    print(*params)
    return code


if __name__ == "__main__":
    sys.exit(main())
