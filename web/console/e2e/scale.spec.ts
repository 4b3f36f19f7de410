// The sizes that the console is for. What it takes is printed, and not asserted: machines differ. What must hold on any
// machine is how much of a long list is in the page at once. CONSOLE_SCALE=whole takes the sizes of the bars; without
// it the log is smaller, and there is no list of 10,000 nodes.
import { execFileSync } from 'node:child_process'
import { createWriteStream, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from '@playwright/test'
import { clusterOf, expect, login, test } from './fixtures'
import type { Director } from './director'

const whole = process.env.CONSOLE_SCALE === 'whole'
const clusters = 1000
const nodes = 1000
const lines = whole ? 1_000_000 : 300_000

// A second try of the whole sizes would make everything again.
if (whole) test.describe.configure({ retries: 0 })

// A trace takes the whole page apart before and after each act: its time would be measured too.
test.use({ trace: 'off' })

test.beforeAll(({ director }) => {
  test.setTimeout(whole ? 1_800_000 : 240_000)
  director.settle()
  const more = '  pods: {cidr: 10.128.0.0/9}\n  services: {cidr: 10.112.0.0/16}\n'
  const document = (name: string, workers: number) => clusterOf(name, { workers, more })
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

const say = (what: string) => console.log(`scale: ${what}`)

async function took(what: string, act: () => Promise<unknown>): Promise<void> {
  const began = performance.now()
  await act()
  say(`${what}: ${(performance.now() - began).toFixed(0)} ms`)
}

// drawn measures in the page itself, from the act's first event of a key, a click or a hash to the frame that shows
// what is wanted: the test program looks too seldom.
async function drawn(page: Page, what: string, wanted: string, count: number, act: () => Promise<unknown>) {
  say(`${what}: ${(await drawnIn(page, wanted, count, act)).toFixed(0)} ms`)
}

async function drawnIn(page: Page, wanted: string, count: number, act: () => Promise<unknown>): Promise<number> {
  await page.evaluate(
    ([selector, n]) => {
      let began = 0
      const begin = () => (began ||= performance.now())
      for (const kind of ['input', 'keydown', 'click', 'hashchange']) {
        addEventListener(kind, begin, { capture: true, once: true })
      }
      const watched = window as unknown as { drawn: Promise<number> }
      watched.drawn = new Promise((resolve) => {
        const look = () => {
          if (began > 0 && document.querySelectorAll(selector).length === n) resolve(performance.now() - began)
          else requestAnimationFrame(look)
        }
        look()
      })
    },
    [wanted, count] as const,
  )
  await act()
  return page.evaluate(() => (window as unknown as { drawn: Promise<number> }).drawn)
}

// expectColumns holds the cells of a table's first row to the places of the titles above them, and checks that the
// browser leaves out the rows that the window does not show.
async function expectColumns(page: Page, table: string): Promise<void> {
  const places = async (cells: string) => {
    const all = await page.locator(`${table} ${cells}`).all()
    return Promise.all(all.map((cell) => cell.evaluate((one) => Math.round(one.getBoundingClientRect().x))))
  }
  expect(await places('tbody > tr:first-child > *')).toEqual(await places('thead > tr > *'))
  const shown = await page
    .locator(`${table} tbody > tr > :first-child`)
    .evaluateAll((all) => all.filter((cell) => cell.checkVisibility({ contentVisibilityAuto: true })).length)
  expect(shown).toBeGreaterThan(5)
  expect(shown).toBeLessThan(80)
}

const times = 7 // odd: the middle one is the median

// often says what an act took that was done several times: one alone says little on a machine that does more.
async function often(what: string, act: () => Promise<number>): Promise<void> {
  const all: number[] = []
  for (let n = 0; n < times; n++) all.push(await act())
  const [least, median, most] = [0, (times - 1) / 2, times - 1].map((i) => all.toSorted((a, b) => a - b)[i]?.toFixed(0))
  say(`${what}: ${median} ms (median of ${times}; ${least} to ${most} ms)`)
}

// opened measures in the page itself, from the beginning of the navigation to the frame that shows the text.
async function opened(page: Page, what: string, path: string, wanted: string, text: string): Promise<void> {
  say(`${what}: ${(await openedIn(page, path, wanted, text)).toFixed(0)} ms`)
}

async function openedIn(page: Page, path: string, wanted: string, text: string): Promise<number> {
  await page.goto(path, { waitUntil: 'commit' })
  return page.evaluate(
    ([selector, shown]) =>
      new Promise<number>((resolve) => {
        const look = () => {
          if (document.querySelector(selector)?.textContent?.includes(shown)) resolve(performance.now())
          else requestAnimationFrame(look)
        }
        look()
      }),
    [wanted, text] as const,
  )
}

// weighed says what the director's API sends to the page during the act, and in how many answers.
async function weighed(page: Page, what: string, act: () => Promise<unknown>): Promise<void> {
  const session = await page.context().newCDPSession(page)
  const asked = new Set<string>()
  const sizes: number[] = []
  session.on('Network.requestWillBeSent', (e) => {
    if (e.request.url.includes('/api/v1/') && e.type !== 'EventSource') asked.add(e.requestId)
  })
  session.on('Network.loadingFinished', (e) => {
    if (asked.has(e.requestId)) sizes.push(e.encodedDataLength)
  })
  await session.send('Network.enable')
  await act()
  const sum = sizes.reduce((a, b) => a + b, 0)
  say(`${what}: ${(sum / 1024).toFixed(0)} KiB in ${sizes.length} answers of the API`)
  await session.detach()
}

function planOf(director: Director, cluster: string): { id: string; steps_total: number } {
  return JSON.parse(director.ctl('plan', cluster, '-o', 'json')) as { id: string; steps_total: number }
}

test('the inbox, cold', async ({ page, director, browser }) => {
  await login(page, director)
  const storageState = await page.context().storageState()
  await often('the inbox of a browser that has nothing in its cache', async () => {
    const cold = await browser.newContext({ ignoreHTTPSErrors: true, storageState, baseURL: director.url })
    const ms = await openedIn(await cold.newPage(), '/', 'main:not(:has(.loading))', 'Runs now')
    await cold.close()
    return ms
  })
})

test('1,000 clusters', async ({ page, director }) => {
  await login(page, director)
  const rows = page.getByRole('table', { name: 'Clusters' }).getByRole('row')
  const body = 'table[aria-label=Clusters] tbody tr'
  // The page is loaded anew each time: it shows at once what it has seen before.
  const open = async (wanted: string, count: number) => {
    await page.goto('/')
    await expect(page.getByRole('heading', { name: 'Runs now' })).toBeVisible()
    await expect(page.locator('.loading')).toHaveCount(0)
    return drawnIn(page, wanted, count, () => page.getByRole('link', { name: 'Clusters', exact: true }).click())
  }
  await often('first rows of 1,000 clusters: the 20 that a window shows', () => open(`${body}:nth-child(20)`, 1))
  await often('first rows of 1,000 clusters: all 100 of a page', () => open(body, 100))
  await expectColumns(page, 'table[aria-label=Clusters]')
  let asked = 90 // each number once: the page knows what it has asked before
  await often('filter of 1,000 clusters', async () => {
    await page.getByLabel('Name, project').fill('')
    await expect(rows).toHaveCount(101)
    await page.waitForTimeout(600) // the next key is a first one again
    asked++
    return drawnIn(page, body, 11, () => page.getByLabel('Name, project').fill(`many-${asked}`))
  })
  await page.getByLabel('Name, project').fill('')
  await expect(rows).toHaveCount(101)
  await page.getByRole('button', { name: 'Next page' }).click()
  await expect(page.getByRole('link', { name: 'many-0', exact: true })).toHaveCount(0)
  await expect(rows).toHaveCount(101)
  say(`1,000 clusters: ${await heap(page)}`)
})

test('a plan of 1,000 nodes', async ({ page, director }) => {
  const made = planOf(director, 'large')
  expect(made.steps_total).toBeGreaterThan(4000)
  await login(page, director)
  await weighed(page, `a plan of ${made.steps_total} steps`, () =>
    opened(page, 'from its address to its effects', `/plans/${made.id}`, '[aria-label=Effects]', 'large-worker-1'),
  )
  await often('from its address to its effects', () =>
    openedIn(page, `/plans/${made.id}`, '[aria-label=Effects]', 'large-worker-1'),
  )
  await weighed(page, 'its nodes and phases', () =>
    drawn(page, 'its nodes and phases', '.matrix tbody tr', 100, () =>
      page.getByRole('main').getByRole('link', { name: 'Nodes', exact: true }).click(),
    ),
  )
  await expectColumns(page, '.matrix')
  await drawn(page, 'a filter of its nodes', '.matrix tbody tr', 1, () =>
    page.getByLabel('Node', { exact: true }).fill('worker-999'),
  )
  await page.getByRole('link', { name: 'Steps', exact: true }).click()
  await expect(page.getByRole('table', { name: 'Steps' }).getByRole('row')).toHaveCount(101)
  say(`a plan of ${made.steps_total} steps: ${await heap(page)}`)
})

// watchEvents counts what comes to the page, and its tasks of more than 50 ms.
async function watchEvents(page: Page): Promise<void> {
  await page.evaluate(() => {
    const seen = { events: 0, long: [] as number[], began: performance.now() }
    ;(window as unknown as { seen: typeof seen }).seen = seen
    new BroadcastChannel('director-events').onmessage = (e: MessageEvent<object>) => {
      if ('event' in e.data) seen.events++
    }
    new PerformanceObserver((all) => seen.long.push(...all.getEntries().map((x) => x.duration))).observe({
      entryTypes: ['longtask'],
    })
  })
}

async function reportEvents(page: Page, where: string): Promise<void> {
  const { events, long, seconds } = await page.evaluate(() => {
    const seen = (window as unknown as { seen: { events: number; long: number[]; began: number } }).seen
    return { events: seen.events, long: seen.long, seconds: (performance.now() - seen.began) / 1000 }
  })
  expect(events).toBeGreaterThan(0)
  say(`${where}, ${(events / seconds).toFixed(0)} events a second for ${seconds.toFixed(0)} s`)
  say(`${long.length} tasks of more than 50 ms, the longest ${Math.max(0, ...long).toFixed(0)} ms; ${await heap(page)}`)
}

const watched = 20_000 // ms, at least
const enough = 300 // steps: three of them may be slower than p99

// shownSteps follows how many steps the page says are done, until there are enough, but no longer than most.
async function shownSteps(page: Page, most: number): Promise<[at: number, done: number][]> {
  return page.evaluate(
    async ([least, most, enough]) => {
      const all: [at: number, done: number][] = []
      const counted = () => (all.at(-1)?.[1] ?? 0) - (all[0]?.[1] ?? 0)
      const began = performance.now()
      const goesOn = (ms: number) => ms < least || (ms < most && counted() < enough)
      while (goesOn(performance.now() - began)) {
        await new Promise((resolve) => requestAnimationFrame(resolve))
        const text = document.querySelector('.pf-v6-c-progress__measure')?.textContent ?? ''
        const done = /^\d+/.exec(text)?.[0]
        if (done && Number(done) !== all.at(-1)?.[1]) all.push([Date.now(), Number(done)])
      }
      return all
    },
    [watched, most, enough] as const,
  )
}

// endsOf returns when the steps of a plan ended, in their order.
async function endsOf(page: Page, plan: string): Promise<number[]> {
  const ends: number[] = []
  for (let after = 0, more = true; more;) {
    const answer = await page.request.get(`/api/v1/plans/${plan}/events?kind=succeeded&after=${after}`)
    const part = (await answer.json()) as { items: { at: string }[]; last: number }
    ends.push(...part.items.map((e) => Date.parse(e.at)))
    more = part.items.length > 0 && part.last > after
    after = part.last
  }
  return ends
}

// waitsOf is how long each step that ended was not counted on the page. A change of the page may count many steps: the
// first of them has waited the longest.
function waitsOf(shown: [at: number, done: number][], ends: number[]): number[] {
  return shown.slice(1).flatMap(([at, done], i) => ends.slice(shown[i]?.[1] ?? 0, done).map((end) => at - end))
}

test(`a log of ${lines} lines`, async ({ page, director }) => {
  test.setTimeout(whole ? 900_000 : 240_000)
  const made = planOf(director, 'logged')
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
  const step = `/plans/${made.id}/steps/${encodeURIComponent('workers/logged-worker-1')}`
  const failing = () => openedIn(page, step, '.log li.bad', `m ${lines - 5}`)
  say(`a log of ${lines} lines, to the line that failed, of which no line was read: ${(await failing()).toFixed(0)} ms`)
  await often(`a log of ${lines} lines, to the line that failed`, failing)
  await expect(page.locator('.log li.bad')).toContainText(`m ${lines - 5}`)
  expect(await page.locator('.log li').count()).toBeLessThanOrEqual(500)
  await drawn(page, 'a jump to a line in its middle', `#L${lines / 2}.here`, 1, async () => {
    await page.getByLabel('Go to line').fill(String(lines / 2))
    await page.getByLabel('Go to line').press('Enter')
  })
  await drawn(page, 'the end of it', `#L${lines}`, 1, () => page.getByText('Follow the end').click())
  const text = page.getByLabel('Search in the log')
  await took('a search of the whole log for one of its lines (200 ms wait for the next key)', async () => {
    await text.fill(`m ${lines - 3}`)
    await expect(page.getByText('1 / 1')).toBeVisible()
  })
  await took('a search of the whole log for a host (200 ms wait for the next key)', async () => {
    await text.fill('h77: ok')
    await expect(page.getByText(`1 / ${lines / 1000}`)).toBeVisible()
  })
  await text.press('Enter')
  await expect(page.locator('.log li.here')).toContainText('h77: ok')
  expect(page.url()).toMatch(/#L77$/)
  say(`a log of ${lines} lines: ${await heap(page)}`)
})

test('pages while a plan of 1,000 nodes runs', async ({ page, director }) => {
  test.setTimeout(whole ? 1_800_000 : 300_000)
  await login(page, director)
  const made = planOf(director, 'large')
  director.ctl('start', made.id, '--yes')
  await page.goto('/clusters')
  await expect(page.getByRole('table', { name: 'Clusters' }).getByRole('row')).toHaveCount(101)
  await watchEvents(page)
  await page.waitForTimeout(15_000)
  await reportEvents(page, '1,000 clusters')

  await page.goto(`/plans/${made.id}/nodes`)
  await expect(page.locator('.matrix tbody tr')).toHaveCount(100)
  await watchEvents(page)
  const shown = await shownSteps(page, whole ? 600_000 : 120_000)
  await reportEvents(page, 'the plan')
  const ends = await endsOf(page, made.id)
  const waits = waitsOf(shown, ends).toSorted((a, b) => a - b)
  expect(waits.length).toBeGreaterThan(10)
  const percentile = (p: number) => `${waits[Math.ceil((waits.length * p) / 100) - 1]} ms`
  const p99 = waits.length > 100 ? percentile(99) : 'not known of so few'
  const seconds = ((shown.at(-1)?.[0] ?? 0) - (shown[0]?.[0] ?? 0)) / 1000
  say(
    `from the end of a step to the page, ${waits.length} steps in ${seconds.toFixed(0)} s: ` +
      `median ${percentile(50)}, p99 ${p99}, at most ${percentile(100)}`,
  )
})

// Plans that make 10,000 nodes take hours: rows of the database are copied, which not every run has to wait for.
if (whole) {
  test('10,000 nodes of all clusters', async ({ page, director }) => {
    test.setTimeout(600_000)
    director.ctl('start', planOf(director, 'many-0').id, '--wait', '--yes')
    await director.kill()
    const database = join(director.dir, 'state/director.db')
    const made = execFileSync('python3', [join(import.meta.dirname, 'manyNodes.py'), database, 'many-0', 'many-', '10'])
    await director.start()
    await login(page, director)
    const rows = 'table[aria-label="Nodes of all clusters"] tbody tr'
    await opened(page, 'first rows of all nodes', '/nodes', `${rows}:nth-child(100)`, '')
    await expect(page.locator(rows)).toHaveCount(100)
    const counts = /([\d,]+) nodes/.exec(await page.getByLabel('Counts').innerText())?.[1] ?? '0'
    expect(Number(counts.replaceAll(',', ''))).toBeGreaterThan(Number(made))
    await drawn(page, 'a filter of all nodes', rows, 1, () => page.getByLabel('Name, cluster').fill('many-77-worker-7'))
    await page.getByLabel('Name, cluster').fill('')
    await expect(page.locator(rows)).toHaveCount(100)
    say(`${counts} nodes: ${await page.getByRole('row').count()} rows in the page, ${await heap(page)}`)
    expect(await page.getByRole('row').count()).toBeLessThanOrEqual(120)
  })
}
