import { defineConfig } from '@playwright/test'

// The only machine that tests ask.
const host = process.env.CONSOLE_REAL ? new URL(process.env.CONSOLE_REAL).hostname : '127.0.0.1'

// The browser is Debian's. What it would ask its maker for by itself is switched off: nothing leaves this machine.
export default defineConfig({
  testDir: 'e2e',
  outputDir: process.env.CONSOLE_REAL ? '../../bin/console-results-real' : '../../bin/console-results',
  timeout: 300_000, // two cores are shared with the guests of other tests
  expect: { timeout: 60_000 },
  workers: 1,
  fullyParallel: false,
  forbidOnly: true,
  retries: 1, // the list names a test that needed its second try
  reporter: [['list']],
  use: {
    actionTimeout: 60_000,
    ignoreHTTPSErrors: true, // the director's certificate is its own
    viewport: { width: 1280, height: 900 },
    trace: 'retain-on-failure',
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
