// What a node shows from inside: what its VM has printed, and a shell.
import { accessible, expect, login, picture, test } from './fixtures'

test.beforeAll(({ director }) => {
  director.settle()
  const made = JSON.parse(director.ctl('plan', 'small', '-o', 'json')) as { id: string }
  director.ctl('start', made.id, '--wait', '--yes')
})

test('a shell on a node shows what is typed, and is in the audit trail', async ({ page, director }) => {
  await login(page, director, '/clusters/small/nodes/small-master-1')
  await page.getByRole('link', { name: 'A shell on the node' }).click()
  await page.getByLabel('Why').fill('a look at the disk')
  await page.keyboard.press('Enter')
  const screen = page.locator('.node-terminal')
  await expect(screen).toContainText('small-master-1 only pretends')
  await page.keyboard.type('df -h /var')
  await expect(screen).toContainText('df -h /var')
  await accessible(page)
  await picture(page, 'shell')
  await page.setViewportSize({ width: 320, height: 700 })
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320)
  await page.keyboard.press('Enter')
  await page.keyboard.type('exit')
  await page.keyboard.press('Enter')
  await expect(page.getByText('The shell is closed: the shell has ended.')).toBeVisible()
  await page.goto('/activity')
  await expect(page.getByText('open shell on small-master-1: a look at the disk').first()).toBeVisible()
  await expect(page.getByText('end shell on small-master-1').first()).toBeVisible()
})

test('more shells than the director allows are refused with the reason', async ({ page, director }) => {
  await login(page, director, '/clusters/small/nodes/small-master-1/shell')
  const open = async (p: typeof page) => {
    await p.getByLabel('Why').fill('x')
    await p.getByRole('button', { name: 'Open a shell' }).click()
  }
  await open(page)
  await expect(page.locator('.node-terminal')).toContainText('only pretends')
  const others = [await page.context().newPage(), await page.context().newPage()]
  for (const p of others) await p.goto('/clusters/small/nodes/small-master-1/shell')
  await open(others[0]!)
  await expect(others[0]!.locator('.node-terminal')).toContainText('only pretends')
  await open(others[1]!)
  await expect(others[1]!.getByText('all 2 shells of this director are open')).toBeVisible()
  await others[0]!.close() // a page that is closed ends its shell
  await expect(async () => {
    await open(others[1]!)
    await expect(others[1]!.locator('.node-terminal')).toContainText('only pretends')
  }).toPass()
})

test('what a VM has printed is plain text', async ({ page, director }) => {
  await page.route('**/api/v1/clusters/small/nodes/small-master-1/console*', (route) =>
    route.fulfill({
      json: { text: '\u001b[31mkernel\u001b[0m\r\n<img src=x onerror=alert(1)>\r\n', at: new Date().toISOString() },
    }),
  )
  await login(page, director, '/clusters/small/nodes/small-master-1/console')
  const printed = page.getByLabel('What small-master-1 has printed')
  await expect(printed).toContainText('kernel\n<img src=x onerror=alert(1)>')
  await accessible(page)
  await picture(page, 'console')
})
