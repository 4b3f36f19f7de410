// One look at a real cluster: CONSOLE_REAL names the address of its director, CONSOLE_REAL_PASSWORD the file with the
// password of admin, and CONSOLE_REAL_CLUSTER the cluster. Without them there is nothing to look at.
import { readFileSync } from 'node:fs'
import { expect, test } from '@playwright/test'

const { CONSOLE_REAL: url, CONSOLE_REAL_PASSWORD: file, CONSOLE_REAL_CLUSTER: cluster } = process.env
test.skip(!url || !file || !cluster, 'no real cluster is named')

test('a real cluster in the console', async ({ page }) => {
  await page.goto(url ?? '')
  await page.getByLabel('User').fill('admin')
  await page.getByLabel('Password').fill(readFileSync(file ?? '', 'utf8').trim())
  await page.getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByText('live', { exact: true })).toBeVisible()
  await page.goto(`${url}/clusters/${cluster}/nodes`)
  const nodes = page.getByRole('table', { name: 'Nodes' })
  await expect(nodes.locator('[data-status=ready]').first()).toBeVisible()
  await expect(nodes.locator('[data-status="not ready"]')).toHaveCount(0)
  await expect(nodes).toContainText('kubelet')
  if (process.env.CONSOLE_PICTURES) await page.screenshot({ path: `${process.env.CONSOLE_PICTURES}/real-nodes.png` })

  await nodes.getByRole('checkbox').last().check()
  await page.getByRole('link', { name: 'Work on 1 node' }).click()
  await page.getByRole('button', { name: /^Rehearse the drain/ }).click()
  // Where the pods of a small cluster run is chance: there may be none to move.
  await expect(page.getByText(/pods? would leave, \d+ would stay|No pod runs there/)).toBeVisible({ timeout: 180_000 })
  if (process.env.CONSOLE_PICTURES) await page.screenshot({ path: `${process.env.CONSOLE_PICTURES}/real-drain.png` })

  await page.goto(`${url}/clusters/${cluster}/nodes`)
  await nodes.getByRole('link', { name: `${cluster}-master-1` }).click()
  await page.getByRole('link', { name: 'What its VM has printed on its console' }).click()
  await expect(page.getByText('As the hypervisor had it')).toBeVisible()
  await page.goBack()
  await page.getByRole('link', { name: 'A shell on the node' }).click()
  await page.getByLabel('Why').fill('the end-to-end test')
  await page.keyboard.press('Enter')
  const screen = page.locator('.node-terminal')
  await expect(screen).toContainText('$')
  await page.keyboard.type('echo $(hostname) is $(sudo id -u)')
  await page.keyboard.press('Enter')
  await expect(screen).toContainText(`${cluster}-master-1 is 0`)
  if (process.env.CONSOLE_PICTURES) await page.screenshot({ path: `${process.env.CONSOLE_PICTURES}/real-shell.png` })
  await page.keyboard.type('exit')
  await page.keyboard.press('Enter')
  await expect(page.getByText('The shell is closed: the shell has ended.')).toBeVisible()
  await page.goto(`${url}/clusters/${cluster}/access`)

  await page.getByRole('button', { name: "Administrator's kubeconfig" }).click()
  const download = page.waitForEvent('download')
  await page.getByRole('dialog').getByRole('button', { name: 'Download' }).click()
  const kubeconfig = readFileSync(await (await download).path(), 'utf8')
  expect(kubeconfig).toContain('client-certificate-data')
})
