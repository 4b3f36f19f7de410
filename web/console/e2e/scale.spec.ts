// The sizes that the console is for. What it takes is printed, and not asserted: machines differ. What must hold on any
// machine is how much of a long list is in the page at once.
import { createWriteStream, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from '@playwright/test'
import { expect, login, test } from './fixtures'

const clusters = 1000
const nodes = 1000
const lines = 300_000

test.beforeAll(({ director }) => {
  director.settle()
  const document = (name: string, workers: number) => `---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: ${name}}
spec:
  release: k8s-1.37
  provider: lab
  image: debian12-k8s-1.37
  network: net1
  pods: {cidr: 10.128.0.0/9}
  services: {cidr: 10.112.0.0/16}
  masters: {memory: 2GiB, disk: 10GiB}
  workers: [{name: worker, count: ${workers}, memory: 2GiB, disk: 10GiB}]
`
  for (let from = 0; from < clusters; from += 250) {
    director.apply(Array.from({ length: 250 }, (_, i) => document(`many-${from + i}`, 1)).join(''))
  }
  director.apply(document('large', nodes - 1) + document('logged', 1))
})

async function heap(page: Page): Promise<string> {
  const session = await page.context().newCDPSession(page)
  await session.send('HeapProfiler.collectGarbage')
  const { usedSize } = await session.send('Runtime.getHeapUsage')
  return `${(usedSize / 1e6).toFixed(0)} MB of heap`
}

async function took(what: string, act: () => Promise<unknown>): Promise<void> {
  const began = performance.now()
  await act()
  console.log(`scale: ${what}: ${(performance.now() - began).toFixed(0)} ms`)
}

test('the inbox, cold', async ({ page, director, browser }) => {
  await login(page, director)
  const cold = await browser.newContext({ ignoreHTTPSErrors: true, storageState: await page.context().storageState() })
  const tab = await cold.newPage()
  await took('the inbox of a browser that has nothing in its cache', async () => {
    await tab.goto(director.url)
    await expect(tab.getByRole('heading', { name: 'Runs now' })).toBeVisible()
    await expect(tab.locator('.loading')).toHaveCount(0)
  })
  await cold.close()
})

test('1,000 clusters', async ({ page, director }) => {
  await login(page, director)
  const rows = page.getByRole('table', { name: 'Clusters' }).getByRole('row')
  await took('first rows of 1,000 clusters', async () => {
    await page.getByRole('link', { name: 'Clusters' }).click()
    await expect(rows).toHaveCount(101)
  })
  await took('filter of 1,000 clusters (200 ms of it wait for the next key)', async () => {
    await page.getByLabel('Name begins with').fill('many-99')
    await expect(rows).toHaveCount(12)
  })
  await page.getByLabel('Name begins with').fill('')
  await expect(rows).toHaveCount(101)
  await page.getByRole('button', { name: 'Next page' }).click()
  await expect(page.getByRole('link', { name: 'many-0', exact: true })).toHaveCount(0)
  await expect(rows).toHaveCount(101)
  console.log(`scale: 1,000 clusters: ${await heap(page)}`)
})

test('a plan of 1,000 nodes', async ({ page, director }) => {
  const made = JSON.parse(director.ctl('plan', 'large', '-o', 'json')) as { id: string; steps_total: number }
  expect(made.steps_total).toBeGreaterThan(4000)
  await login(page, director)
  await took(`a plan of ${made.steps_total} steps, from the link to its effects`, async () => {
    await page.goto(`/plans/${made.id}`)
    await expect(page.getByLabel('Effects')).toContainText('large-worker-1')
  })
  await took('its nodes and phases', async () => {
    await page.getByRole('link', { name: 'Nodes', exact: true }).click()
    await expect(page.locator('.matrix tbody tr')).toHaveCount(100)
  })
  await took('a filter of its nodes', async () => {
    await page.getByLabel('Node', { exact: true }).fill('worker-999')
    await expect(page.locator('.matrix tbody tr')).toHaveCount(1)
  })
  await page.getByRole('link', { name: 'Steps', exact: true }).click()
  await expect(page.getByRole('table', { name: 'Steps' }).getByRole('row')).toHaveCount(101)
  console.log(`scale: a plan of ${made.steps_total} steps: ${await heap(page)}`)
})

test('a log of 300,000 lines', async ({ page, director }) => {
  const made = JSON.parse(director.ctl('plan', 'logged', '-o', 'json')) as { id: string }
  director.ctl('start', made.id, '--wait', '--yes')
  const file = readdirSync(join(director.dir, 'state/runs'), { recursive: true, encoding: 'utf8' }).find(
    (f) => f.includes(made.id) && f.includes('logged-worker-1') && f.endsWith('.jsonl') && f.includes('workers'),
  )
  expect(file, 'the log of the step').toBeDefined()
  const out = createWriteStream(join(director.dir, 'state/runs', file ?? ''))
  const time = '2026-01-02T03:04:05Z'
  for (let n = 1; n <= lines; n++) {
    const status = n === lines - 5 ? 'failed' : 'ok'
    if (!out.write(`${JSON.stringify({ n, time, type: 'host', host: `h${n % 1000}`, status, msg: `m ${n}` })}\n`)) {
      await new Promise((resolve) => out.once('drain', () => resolve(undefined)))
    }
  }
  await new Promise((resolve) => out.end(() => resolve(undefined)))
  await login(page, director)
  await took(`a log of ${lines} lines, to the line that failed`, async () => {
    await page.goto(`/plans/${made.id}/steps/${encodeURIComponent('workers/logged-worker-1')}`)
    await expect(page.locator('.log li.bad')).toBeVisible({ timeout: 180_000 })
  })
  await expect(page.locator('.log li.bad')).toContainText(`m ${lines - 5}`)
  expect(await page.locator('.log li').count()).toBeLessThanOrEqual(500)
  await took('a search in what is kept of it', async () => {
    await page.getByLabel('Search in the log').fill(`h${lines % 1000}: ok`)
    await expect(page.getByText('1 / 20')).toBeVisible()
  })
  console.log(`scale: a log of ${lines} lines: ${await heap(page)}`)
})
