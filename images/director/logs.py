"""A log server on this machine, and the journal that an appliance sends to it."""

import os
import socket
import ssl
import threading

from vms import VM, WORK, check, good, sh, wait

HOST = "10.89.0.1"
NAME = "logs.example.org"


class Logs:
    """A log server with TLS that takes messages of who shows a certificate of its authority."""

    def __init__(self) -> None:
        self.top, self.messages, self.port = f"{WORK}/logs", [], 0
        os.makedirs(self.top)
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        sh("openssl", "req", "-x509", *kind, "-subj", "/CN=logs", "-keyout", f"{self.top}/ca.key", "-out",
           f"{self.top}/ca.crt")
        for file, name, use in (("server", NAME, "serverAuth"), ("client", "director.example.org", "clientAuth")):
            sh("openssl", "req", "-x509", *kind, "-subj", f"/CN={name}", "-CA", f"{self.top}/ca.crt", "-CAkey",
               f"{self.top}/ca.key", "-addext", f"subjectAltName=DNS:{name}", "-addext", f"extendedKeyUsage={use}",
               "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", f"{self.top}/{file}.key", "-out",
               f"{self.top}/{file}.crt")
        self.listener, self.connections = None, []
        self.start()

    def start(self) -> None:
        """Listen, always at the same port."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{self.top}/server.crt", f"{self.top}/server.key")
        context.load_verify_locations(f"{self.top}/ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        listener = socket.create_server((HOST, self.port))
        self.listener, self.port = listener, listener.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=self.take, args=(context, connection), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def stop(self) -> None:
        """Go away."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for tls in self.connections:
            try:
                tls.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.connections.clear()

    def take(self, context: ssl.SSLContext, connection: socket.socket) -> None:
        """Read messages whose length is before them (RFC 5425)."""
        try:
            with context.wrap_socket(connection, server_side=True) as tls, tls.makefile("rb") as f:
                self.connections.append(tls)
                while True:
                    head = b""
                    while not head.endswith(b" "):
                        more = f.read(1)
                        if not more:
                            return
                        head += more
                    self.messages.append(f.read(int(head)).decode("utf-8", "replace"))
        except (OSError, ValueError):
            return

    def has(self, what: str, *texts: str) -> None:
        """Wait for a message with the texts."""
        try:
            wait(what, lambda: any(all(text in message for text in texts) for message in list(self.messages)))
            seen = ""
        except AssertionError as err:
            seen = f"{err}: {self.messages[-5:]}"
        check(what, not seen, seen)

    def begins(self, vm: VM) -> None:
        """Have the appliance send its journal, and look at its unit."""
        check("without a log server, nothing of rsyslog runs",
              vm.on("pgrep -x rsyslogd || systemctl is-active director-logs").returncode != 0)
        vm.on("sudo install -d /data/etc/logs", check=True)
        for file in ("ca.crt", "client.crt", "client.key"):
            vm.put(f"{self.top}/{file}", f"/data/etc/logs/{file}")
        vm.on("sudo cp -p /data/etc/director.yaml /data/etc/director.yaml.before; true")
        vm.send((f"\nauditSyslog:\n  address: {HOST}:{self.port}\n  serverName: {NAME}\n  journal: true\n"
                 "  caFile: /data/etc/logs/ca.crt\n  certFile: /data/etc/logs/client.crt\n"
                 "  keyFile: /data/etc/logs/client.key\n").encode(), "sudo tee -a /data/etc/director.yaml >/dev/null")
        good("setup apply takes the log server",
             vm.on("sudo director setup apply && sudo systemctl restart director director-logs"))
        vm.page()
        vm.on("logger -t canary 'the first message'; sudo sh -c 'echo h >/proc/sysrq-trigger'", check=True)
        self.has("a message of the journal arrives", " canary ", "the first message")
        self.has("and one of the kernel", " kernel ", "sysrq: HELP")
        self.has("and one of the director, with the name of the appliance", " director-1.example.org director ")
        self.has("and the audit trail", "<110>1 ", " director ")
        vm.forget()
        vm.wait_ssh()
        self.has("and a log-in by SSH", " sshd ", "Accepted publickey for admin")
        for what, command in (
            ("the unit runs", "systemctl is-active director-logs"),
            ("rsyslogd has a user of its own", "test $(ps -o user:20= -C rsyslogd | sort -u) = director-logs"),
            ("it listens to nothing", r"! sudo ss -Hlntup | grep rsyslogd | grep ."),
            ("the key is closed to others", "! cat /etc/director-logs/client.key"),
            ("the service of the package does not run, and cannot", "systemctl is-enabled rsyslog | grep -x masked"),
            ("nothing is written next to the journal", "! sudo find /var/log -type f -not -path '/var/log/journal/*' "
             r"-regex '.*/\(syslog\|messages\|auth.log\|kern.log\|user.log\|cron.log\)' | grep ."),
            ("it reads nothing of the director",
             "of='sudo nsenter -t '$(pgrep -o -x rsyslogd)' -m'; as=\"$of -S 902 -G 902\"; $as ls /data/logs && "
             "! $as ls /data/director && test -z \"$($of ls -A /data/director)\""),  # nor would root there
            ("no unit failed next to it", "! systemctl --failed --no-legend --plain | grep ."),
        ):
            done = vm.on(command)
            check(what, done.returncode == 0, done.stdout + done.stderr)
        self.stop()
        vm.on("logger -t canary 'while the log server is away'", check=True)
        check("the director works while the log server is away",
              vm.on("curl -fsSk -o /dev/null https://127.0.0.1/readyz").returncode == 0)

    def ends(self, vm: VM) -> None:
        """Let the log server return, after a restart of the VM, and have the appliance send nothing any more."""
        self.start()
        self.has("what was written while the log server was away arrives after a restart", " canary ",
                 "while the log server is away")
        vm.on("sudo rm /data/etc/director.yaml; sudo mv /data/etc/director.yaml.before /data/etc/director.yaml; true")
        good("setup apply takes that there is none",
             vm.on("sudo director setup apply && sudo systemctl restart director director-logs"))
        vm.page()
        check("rsyslogd has ended, and its key is gone", vm.on(
            "! pgrep -x rsyslogd && ! sudo ls /etc/director-logs/client.key && "
            "! systemctl --failed --no-legend --plain | grep .").returncode == 0)
        self.stop()
