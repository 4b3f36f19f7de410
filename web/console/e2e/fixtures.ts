import AxeBuilder from '@axe-core/playwright'
import { expect, test as base, type Locator, type Page } from '@playwright/test'
import { Director } from './director'

interface Worker {
  director: Director
}

// test has a director for each file, and fails when a page breaks the content policy, throws, or asks another machine.
export const test = base.extend<{ watched: void }, Worker>({
  director: [
    async ({}, use) => {
      const director = new Director()
      await director.start()
      await use(director)
      await director.stop()
    },
    { scope: 'worker' },
  ],
  baseURL: async ({ director }, use) => use(director.url),
  watched: [
    async ({ context, director }, use) => {
      const wrong: string[] = []
      await context.addInitScript(() => {
        document.addEventListener('securitypolicyviolation', (e) => {
          console.error(`content policy: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`)
        })
      })
      context.on('weberror', (e) => wrong.push(`threw: ${e.error().message}`))
      context.on('console', (m) => {
        if (m.type() === 'error' && /content policy|Content Security Policy|React|Warning:/.test(m.text()))
          wrong.push(m.text())
      })
      context.on('request', (r) => {
        const known = [director.url, ...director.others, 'data:', 'blob:']
        if (!known.some((start) => r.url().startsWith(start))) wrong.push(`asked ${r.url()}`)
      })
      await use()
      expect(wrong).toEqual([])
    },
    { auto: true },
  ],
})

export { expect }

export async function login(page: Page, director: Director, path = '/'): Promise<void> {
  await page.goto(path)
  await page.getByLabel('User').fill('admin')
  await page.getByLabel('Password').fill(director.password)
  await page.getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByRole('button', { name: 'Navigation' })).toBeVisible()
}

interface ClusterOf {
  workers?: number
  labels?: string
  more?: string // further lines of spec
}

// clusterOf is the document of a small cluster on what the rehearsing director has.
export const clusterOf = (name: string, { workers = 1, labels = '', more = '' }: ClusterOf = {}) => `---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: ${name}, labels: {${labels}}}
spec:
  release: k8s-1.37
  provider: lab
  image: debian12-k8s-1.37
  network: net1
${more}  masters: {memory: 2GiB, disk: 10GiB}
  workers: [{name: worker, count: ${workers}, memory: 2GiB, disk: 10GiB}]
`

// blockStorage has the browser refuse to store anything for the pages that come.
export async function blockStorage(page: Page): Promise<void> {
  await page.addInitScript(() => {
    for (const name of ['localStorage', 'indexedDB']) {
      Object.defineProperty(window, name, {
        get() {
          throw new DOMException('The user has blocked storage.', 'SecurityError')
        },
      })
    }
  })
}

// write replaces the text of an editor as a person does it. (Playwright's fill has the browser insert styled text,
// which the content policy refuses.)
export async function write(editor: Locator, text: string): Promise<void> {
  await editor.click()
  await editor.press('Control+a')
  await editor.press('Delete')
  await editor.page().keyboard.insertText(text)
  // The editor takes what was typed a moment later, and has kept it as a draft then.
  await editor.page().waitForFunction(async (wanted) => {
    const db = await new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open('director', 1)
      request.onupgradeneeded = () => request.transaction?.abort() // the console makes it
      request.onsuccess = () => resolve(request.result)
      request.onerror = () => reject(new Error('there is none yet'))
    }).catch(() => undefined)
    if (!db) return false
    const all = await new Promise<{ text: string }[]>((resolve) => {
      const got = db.transaction('drafts').objectStore('drafts').getAll()
      got.onsuccess = () => resolve(got.result as { text: string }[])
    })
    db.close()
    return all.some((draft) => draft.text.includes(wanted))
  }, text)
}

// accessible fails for anything that axe finds on the page. A colour that is still changing is none that anyone reads,
// so what axe finds while one changes is looked at again. The rules are all of them, or those that other colours can
// break.
export async function accessible(page: Page, rules: 'all' | 'colours' = 'all'): Promise<void> {
  let found = await faults(page, rules)
  for (let again = 0; again < 3 && found.length > 0; again++) {
    found = await faults(page, rules)
  }
  expect(found).toEqual([])
}

async function faults(page: Page, rules: 'all' | 'colours'): Promise<string[]> {
  await page.evaluate(async () => {
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))
    const changing = document.getAnimations().filter((a) => a instanceof CSSTransition)
    await Promise.allSettled(changing.map((a) => a.finished))
  })
  // A terminal has its text a second time, in no colour, for those who cannot see it.
  const axe = new AxeBuilder({ page }).exclude('.xterm-accessibility')
  if (rules === 'colours') axe.withRules(['color-contrast', 'link-in-text-block'])
  const found = await axe.analyze()
  const said = found.violations.map(
    (v) => `${v.id}: ${v.nodes.map((n) => `${n.target.join(' ')} (${n.failureSummary ?? ''})`).join('; ')}`,
  )
  // The browser chooses both colours where they are forced, and axe reads some of the style sheet's instead.
  if (await page.evaluate(() => matchMedia('(forced-colors: active)').matches)) return said
  // Text in the colour of what is behind it is hidden text to axe, and nothing that it complains about.
  const unseen = found.incomplete
    .filter((v) => v.id === 'color-contrast')
    .flatMap((v) => v.nodes)
    .filter((n) => n.any.some((c) => (c.data as { messageKey?: string } | null)?.messageKey === 'equalRatio'))
    .map((n) => `text without contrast: ${n.target.join(' ')}`)
  return [...said, ...unseen]
}

// picture keeps a screenshot for the reader where CONSOLE_PICTURES names a directory.
export async function picture(page: Page, name: string): Promise<void> {
  const dir = process.env.CONSOLE_PICTURES
  if (dir) await page.screenshot({ path: `${dir}/${name}.png` })
}

// toStep follows a link to another step of the wizard, and waits until it is there: the step before it may have fields
// of the same names.
export async function toStep(page: Page, name: string | RegExp): Promise<void> {
  const at = page.locator('[aria-current="step"]')
  const here = (await at.getAttribute('href')) ?? ''
  expect(here).toContain('?step=')
  await page.getByRole('link', { name, exact: true }).click()
  await expect(at).not.toHaveAttribute('href', here)
}

// tabTo goes to what has that text or label with the Tab key alone.
export async function tabTo(page: Page, name: string): Promise<void> {
  for (let i = 0; i < 120; i++) {
    const at = await page.evaluate(() => [
      document.activeElement?.textContent?.trim(),
      document.activeElement?.getAttribute('aria-label'),
      (document.activeElement as HTMLInputElement | null)?.labels?.[0]?.textContent?.replace(/[\s*]+$/, ''),
    ])
    if (at.includes(name)) return
    await page.keyboard.press('Tab')
  }
  throw new Error(`the Tab key does not come to ${name}`)
}

// entry is the name of a menu's entry. One that acts at once has its command below.
export const entry = (name: string) => new RegExp(`^${name}\\s*(directorctl .*)?$`)
