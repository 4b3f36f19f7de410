// A rehearsing director for the tests of one file: the real program, with simulated hypervisors and playbooks.
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

// What a node may print, as YAML writes it: escapes of terminals, a right-to-left mark, markup, and a line of 32 KiB.
const nastyBytes = `\\e[31mred\\e[0m \\u202Egnp.exe <img src=x onerror=alert(1)> ${'x'.repeat(32 << 10)}`

const root = join(import.meta.dirname, '../../..')

// freePort draws below the ports that Linux takes for a connection or for port 0. So what else runs on the machine does
// not get it by chance before the director has it.
async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10000, 32768)
    const free = await new Promise<boolean>((resolve) => {
      const server = createServer()
      server.on('error', () => resolve(false))
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
    })
    if (free) return port
  }
}

export class Director {
  readonly password = 'correct horse battery staple'
  url = ''
  readonly others: string[] = [] // other machines that a page of a test may ask
  readonly dir = mkdtempSync(join(tmpdir(), 'director-console-'))
  private process: ChildProcess | undefined
  private readonly logFile = join(this.dir, 'director.log')

  constructor(private readonly documents = [join(import.meta.dirname, 'models')]) {}

  // start makes a state directory once, and begins where it was left the next time.
  async start(settings = ''): Promise<void> {
    const config = join(this.dir, 'config.yaml')
    if (this.url === '') {
      const port = await freePort()
      this.url = `https://127.0.0.1:${port}`
      writeFileSync(
        config,
        `
stateDir: ${this.dir}/state
address: 127.0.0.1
listen: 127.0.0.1:${port}
registryListen: 127.0.0.1:${await freePort()}
backupDirs: [${this.dir}/backups]
providerNetworks: [127.0.0.0/8]
forks: 200
creationsPerHour: 0
nodeShells: 2
simulate: true
simulation:
  documents: [${this.documents.join(', ')}]
  seed: 1
  boot: 100ms
  pods:
    - {nodes: "*-worker-*", namespace: shop, name: web-5d9f, owner: ReplicaSet/web}
    - {nodes: "*-worker-*", namespace: shop, name: cache-0, owner: StatefulSet/cache, blocked: local_data,
       why: "what is in its emptyDir volume data would be lost"}
    - {nodes: "*-worker-*", namespace: shop, name: db-0, owner: StatefulSet/db, blocked: budget,
       why: "disruption budget db allows no disruption: 1 of its pods are healthy and 1 have to be"}
  plays:
    tasks: 4
    latency: 20ms
    changed: 40
    faults:
      - {hosts: "broken-*", playbook: workers, outcome: failed, percent: 100, msg: "no space left on device"}
      - {hosts: "frail-*", playbook: registry_trust, outcome: failed, percent: 100, msg: "no route to host"}
      - {hosts: "weak-*", playbook: upgrade_worker, outcome: failed, percent: 100, msg: "no space left on device"}
      - {hosts: "nasty-*", playbook: workers, outcome: failed, percent: 100, msg: "${nastyBytes}"}
${settings}`,
      )
    }
    // Nobody would empty a pipe while ctl waits, and the director would wait for that.
    const log = openSync(this.logFile, 'w')
    const p = spawn(join(root, 'bin/director'), ['simulate', '-config', config], { stdio: ['ignore', log, log] })
    closeSync(log)
    this.process = p
    await this.until(async () => {
      if (p.exitCode !== null) throw new Error(`the director has ended:\n${this.log()}`)
      return this.log().includes('directorctl login')
    })
  }

  private log(): string {
    return readFileSync(this.logFile, 'utf8').slice(-20_000)
  }

  private async until(met: () => Promise<boolean>): Promise<void> {
    const end = Date.now() + 60_000
    while (!(await met())) {
      if (Date.now() > end) throw new Error(`the director does not answer:\n${this.log()}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }

  // kill ends the director as a power cut does.
  async kill(): Promise<void> {
    const p = this.process
    if (!p || p.exitCode !== null) return
    const ended = new Promise((resolve) => p.once('exit', resolve))
    p.kill('SIGKILL')
    await ended
  }

  // ctl runs directorctl as admin, and returns what it printed.
  ctl(...args: string[]): string {
    return execFileSync(join(root, 'bin/directorctl'), args, {
      encoding: 'utf8',
      timeout: process.env.CONSOLE_SCALE ? 1_200_000 : 240_000, // nothing else, no timeout of a test either, can end it
      maxBuffer: 64 << 20,
      env: { ...process.env, DIRECTOR_CONFIG: join(this.dir, 'client.yaml') },
    })
  }

  // apply stores documents.
  apply(text: string): void {
    const file = join(this.dir, 'documents.yaml')
    writeFileSync(file, text)
    this.ctl('apply', '-f', file)
  }

  private settled = false

  // settle logs directorctl in and gives admin the password that the tests know.
  settle(): void {
    if (this.settled) return
    this.settled = true
    const file = join(this.dir, 'state/admin.password')
    this.ctl(
      'login',
      '--server',
      this.url,
      '--ca-file',
      join(this.dir, 'state/tls/ca.crt'),
      '--user',
      'admin',
      '--password-file',
      file,
    )
    const wanted = join(this.dir, 'password')
    writeFileSync(wanted, this.password)
    this.ctl('password', '--password-file', file, '--new-password-file', wanted)
  }

  async stop(): Promise<void> {
    await this.kill()
    rmSync(this.dir, { recursive: true, force: true })
  }
}
