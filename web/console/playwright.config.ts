import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig } from '@playwright/test'

// The only machine that tests ask.
const host = process.env.CONSOLE_REAL ? new URL(process.env.CONSOLE_REAL).hostname : '127.0.0.1'

const tests = 'e2e'

// The browser is Debian's. What it would ask its maker for by itself is switched off: nothing leaves this machine.
export default defineConfig({
  testDir: tests,
  // Each file is a project, and so has a worker and a director of its own: no test sees what another file has made.
  projects: readdirSync(join(import.meta.dirname, tests))
    .filter((f) => f.endsWith('.spec.ts'))
    .map((f) => ({ name: f.replace('.spec.ts', ''), testMatch: f })),
  outputDir: process.env.CONSOLE_REAL ? '../../bin/console-results-real' : '../../bin/console-results',
  timeout: 300_000, // two cores are shared with the guests of other tests
  expect: { timeout: 60_000 },
  workers: 1,
  fullyParallel: false,
  forbidOnly: true,
  maxFailures: 4, // each may take ten minutes: a console that is broken ends the run early
  retries: 1, // the list names a test that needed its second try
  reporter: [['list']],
  use: {
    actionTimeout: 60_000,
    ignoreHTTPSErrors: true, // the director's certificate is its own
    viewport: { width: 1280, height: 900 },
    // Of a failure, the page as it was before each step, and a picture of its end. A film of each test, for the case
    // that it fails, took half as much processor time as the test.
    trace: { mode: 'retain-on-failure', screenshots: false },
    screenshot: 'only-on-failure',
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
        `--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE ${host}`,
      ],
    },
  },
})
