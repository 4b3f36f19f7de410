"""A time server on this machine, and an appliance whose clock is years off."""

import contextlib
import os
import socket
import struct
import threading
import time

from vms import DISKS, IMAGE, VM, check, first_start, good, manifest, wait

HOST = "10.89.0.1"
YEAR = 365 * 24 * 3600
EPOCH = 2208988800  # seconds from 1900, where NTP begins, to 1970


class TimeServer:
    """A server of the time by NTP (RFC 5905), with this machine's clock, or one that is so many seconds ahead."""

    def __init__(self) -> None:
        self.socket, self.ahead = None, 0

    def start(self) -> None:
        """Answer whoever asks."""
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((HOST, 123))
        threading.Thread(target=self.serve, args=(self.socket,), daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        with contextlib.suppress(OSError):  # it ends who waits in it, and says that nobody is connected
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def serve(self, sock: socket.socket) -> None:
        """Answer each question until the socket is closed."""
        def stamp() -> bytes:
            at = time.time() + self.ahead
            return struct.pack("!II", (int(at) + EPOCH) & 0xffffffff, int(at % 1 * (1 << 32)))

        while True:
            try:
                asked, client = sock.recvfrom(512)
            except OSError:
                return
            came = stamp()
            if len(asked) < 48 or asked[0] & 7 != 3:
                continue
            # The version of the client, a server, stratum 2, its poll, a precision of 2^-20 s; no delay, 1 ms of error.
            head = struct.pack("!BBbbIII", asked[0] & 0x38 | 4, 2, asked[2], -20, 0, 65, 0x7f7f0101)
            sock.sendto(head + came + asked[40:48] + came + stamp(), client)


TIMES = TimeServer()


def clock() -> None:
    """First boot of a VM whose clock is three years ahead; a start with one that is ten years behind."""
    vm = VM("clock", "10.89.0.26", "52:54:00:89:00:26")
    # Certificates begin an hour before they are made. So those of the first start are good here, and not yet at the
    # time of the image.
    TIMES.ahead = 3000
    data = first_start(vm, ahead=3 * YEAR, ntp={"servers": [HOST]})
    vm.page()
    vm.wait_ssh()
    good("the first start waits for the time: its certificate is good for who has the right time",
         vm.login(vm.authority()))
    off = abs(float(vm.on("date +%s.%N").stdout) - time.time() - TIMES.ahead)
    check(f"the clock that was three years ahead is right, to {off:.1f} s", off < 60, str(off))
    done = vm.on("sudo director setup check")
    good("setup check says so", done, f"NTP server {HOST}")
    vm.forget()
    vm.stop()

    TIMES.stop()
    TIMES.ahead = 0
    vm.start(f"{DISKS}/{vm.name}-root.qcow2", data, ahead=-10 * YEAR)
    vm.wait_ssh()
    built = int(manifest(os.path.dirname(IMAGE))[1])
    now = int(vm.on("date +%s").stdout)
    check("a clock that is ten years behind begins at the time of the image", built <= now < built + 3600,
          f"{now}, {built}")
    done = vm.on("sudo director setup check")
    check("setup check says that no time server answers", done.returncode == 69 and "does not answer" in done.stdout,
          done.stdout + done.stderr)
    wait("the journal says why the director does not start", lambda: vm.on(
        "sudo journalctl -b -u director | grep -q 'clock says .* authority begins at'").returncode == 0)
    TIMES.start()
    began = time.monotonic()
    vm.page()
    check(f"the time server is back: the log-in page after {time.monotonic() - began:.0f} s", True)
    good("the password is good", vm.login(vm.authority()))
    check("no unit failed", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0,
          vm.on("systemctl --failed --no-legend --plain").stdout)
    vm.forget()
    vm.destroy()
