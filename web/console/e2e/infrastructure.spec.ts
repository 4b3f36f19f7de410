// What clusters are made from and of: addresses, release bundles, what the ledger and the hypervisors disagree about,
// and disks that outlived their VMs.
import { appendFileSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Director } from './director'
import { accessible, entry, expect, login, picture, test } from './fixtures'

interface Record {
  vm?: { VM: { ID: string; Name: string; Stamp: { Machine: string } } }
}

// world is the file of the simulated hypervisor. Others may write to it, as people act on a real one.
function world(director: Director): string {
  const state = join(director.dir, 'state')
  const found = readdirSync(state, { recursive: true, encoding: 'utf8' }).find((f) => f.endsWith('world-lab.jsonl'))
  if (!found) throw new Error('the simulated hypervisor keeps no file')
  return join(state, found)
}

function machine(director: Director, name: string): NonNullable<Record['vm']> {
  const found = readFileSync(world(director), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => (JSON.parse(line) as Record).vm)
    .findLast((vm) => vm?.VM.Name === name)
  if (!found) throw new Error(`there is no VM ${name}`)
  return found
}

test.beforeAll(({ director }) => {
  director.settle()
  for (const name of ['small', 'doomed']) {
    const made = JSON.parse(director.ctl('plan', name, '-o', 'json')) as { id: string }
    director.ctl('start', made.id, '--wait', '--yes')
  }
})

test('a project shows how much of its quota its images use', async ({ page, director }) => {
  director.apply('apiVersion: kaas/v1\nkind: Project\nmetadata: {name: web}\nspec: {quota: {images: 50GiB}}\n')
  await login(page, director, '/documents/Project/web')
  const card = page.locator('section', { has: page.getByRole('heading', { name: 'Images' }) }).last() // the innermost
  await expect(card).toContainText('0 B')
  await expect(card).toContainText('50 GiB')
  await accessible(page)
})

test('a network shows who has which address, and how many are free', async ({ page, director }) => {
  await login(page, director, '/infrastructure/networks')
  await page.getByRole('link', { name: 'net1' }).click()
  const table = page.getByRole('table', { name: 'Addresses' })
  await expect(table.getByRole('row', { name: /gateway/ })).toContainText('10.64.0.1')
  const row = table.getByRole('row', { name: /small-worker-1/ })
  await expect(row).toContainText('of a node')
  await expect(row).toContainText('present')
  const said = JSON.parse(director.ctl('network', 'addresses', 'net1', '-o', 'json')) as {
    used: number
    free: number
    pool: number
  }
  expect(said.used).toBe(5)
  expect(said.free).toBe(said.pool - 5)
  await expect(page.getByText(String(said.free), { exact: true })).toBeVisible()
  await accessible(page)
  await picture(page, 'network')
  await page.getByLabel('Use', { exact: true }).selectOption('gateway')
  await expect(table.getByRole('row', { name: /small/ })).toHaveCount(0)
  await page.getByLabel('Use', { exact: true }).selectOption('')
  await page.getByRole('textbox', { name: 'Address, node or cluster' }).fill('small-worker-2')
  await expect(table.getByRole('row')).toHaveCount(2)
  await page.setViewportSize({ width: 320, height: 800 })
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320)
  await table.getByRole('link', { name: 'small-worker-2' }).click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('small-worker-2')
})

test('a release bundle is imported, named, verified, kept while it is used, and deleted', async ({
  page,
  director,
}) => {
  const bundle = /bundle: (\S+)/.exec(director.ctl('get', 'release', 'k8s-1.37', '-o', 'yaml'))?.[1]
  if (!bundle) throw new Error('the director has no bundle')
  const archive = join(director.dir, 'k8s.tar')
  director.ctl('release', 'pack', bundle, archive)

  await login(page, director, '/infrastructure/releases')
  await page.getByRole('link', { name: 'Import a bundle' }).click()
  await accessible(page)
  await page.locator('#release-file').setInputFiles(archive)
  await page.getByLabel('Trust').selectOption('unsigned')
  await page.locator('#release-reason').fill('two words')
  await expect(page.getByRole('button', { name: 'Import' })).toBeDisabled()
  await page.locator('#release-reason').fill('it is a test')
  await page.getByRole('button', { name: 'Import' }).click()
  await expect(page.getByText('The bundle is on the director.')).toBeVisible({ timeout: 180_000 })
  await picture(page, 'release-import')

  const table = page.getByRole('table', { name: 'Releases' })
  await page.goto('/infrastructure/releases')
  const free = table.getByRole('row', { name: /no document names it/ })
  await expect(free).toContainText('by admin')
  await free.getByRole('button', { name: /toggle/ }).click()
  await page.getByRole('menuitem', { name: 'Write its document' }).click()
  const editor = page.getByRole('textbox', { name: 'New Release' })
  await expect(editor).toContainText('digest:')
  const text = await editor.innerText()
  const digest = /digest: "([0-9a-f]{64})"/.exec(text)?.[1] ?? ''
  director.apply(
    'apiVersion: kaas/v1\nkind: Release\nmetadata: {name: imported}\n' +
      `spec: {digest: "${digest}", kubernetes: v1.37.1, unsigned: it is a test}\n`,
  )

  await page.goto('/infrastructure/releases')
  const row = table.getByRole('row', { name: /^imported/ })
  const verb = async (name: string) => {
    await row.getByRole('button', { name: /toggle/ }).click()
    await page.getByRole('menuitem', { name: entry(name) }).click()
  }
  await verb('Read to its end')
  await expect(page.getByText('imported is whole: Kubernetes v1.37.1.')).toBeVisible()
  await accessible(page)
  await verb('Delete the bundle')
  const dialog = page.getByRole('dialog')
  await dialog.getByRole('button', { name: 'Delete the bundle' }).click()
  await expect(dialog.getByRole('alert')).toContainText('Release/imported')
  await picture(page, 'release-in-use')
  await dialog.getByRole('button', { name: 'Cancel' }).click()

  await page.getByRole('button', { name: 'Delete what nothing needs' }).click()
  await expect(dialog).toContainText('Nothing to delete')
  await expect(dialog.getByRole('button', { name: 'Delete', exact: true })).toBeDisabled()
  await dialog.getByRole('button', { name: 'Cancel' }).click()

  director.ctl('delete', 'release', 'imported', '--yes')
  await page.reload()
  await free.getByRole('button', { name: /toggle/ }).click()
  await page.getByRole('menuitem', { name: 'Delete the bundle' }).click()
  await dialog.getByRole('button', { name: 'Delete the bundle' }).click()
  await expect(free).toHaveCount(0)
  rmSync(archive)
})

test('an archive that is none is refused', async ({ page, director }) => {
  await login(page, director, '/releases/import')
  await page.locator('#release-file').setInputFiles(join(director.dir, 'config.yaml'))
  await page.getByLabel('Trust').selectOption('unsigned')
  await page.locator('#release-reason').fill('it is a test')
  await page.getByRole('button', { name: 'Import' }).click()
  await expect(page.getByRole('alert')).toContainText(/archive|bundle/)
})

test('the director fetches a bundle from a mirror, and not from itself', async ({ page, director }) => {
  await login(page, director, '/releases/import')
  await page.getByLabel('Where the archive is').selectOption('mirror')
  await expect(page.getByRole('button', { name: 'Import' })).toBeDisabled()
  await page.getByLabel('Address of the archive').fill(`${director.url}/k8s.tar`)
  await page.getByLabel('Account at the mirror').fill('ann')
  await page.getByLabel('Its password').fill('hunter2')
  await accessible(page)
  await page.getByRole('button', { name: 'Import' }).click()
  await expect(page.getByRole('alert')).toContainText('the director itself listens there')
  await picture(page, 'mirror')
})

test('findings of the ledger are put right', async ({ page, director }) => {
  const stray = machine(director, 'small-worker-1')
  const gone = machine(director, 'small-worker-2')
  stray.VM.ID = `${stray.VM.ID}-stray`
  stray.VM.Name = 'stray'
  stray.VM.Stamp.Machine = '6c4b3e2a-7f0d-5a1e-9c55-0242ac120002'
  appendFileSync(world(director), `${JSON.stringify({ vm: stray })}\n${JSON.stringify({ no_vm: gone.VM.ID })}\n`)

  await login(page, director, '/infrastructure/audit')
  await page.getByRole('button', { name: 'Compare' }).click()
  const table = page.getByRole('table', { name: 'Findings' })
  const orphan = table.getByRole('row', { name: /stray/ })
  await expect(orphan).toContainText('orphan')
  await expect(table.getByRole('row', { name: /ghost/ })).toContainText('small-worker-2')
  await accessible(page)
  await picture(page, 'findings')

  const dialog = page.getByRole('dialog')
  await orphan.getByRole('button', { name: 'Adopt' }).click()
  await dialog.getByRole('button', { name: 'Adopt' }).click()
  await expect(dialog.getByRole('alert')).toBeVisible()
  await dialog.getByRole('button', { name: 'Cancel' }).click()

  await orphan.getByRole('button', { name: 'Reclaim' }).click()
  await dialog.getByRole('button', { name: 'Delete the VM' }).click()
  await expect(orphan).toHaveCount(0)

  await table.getByRole('row', { name: /ghost/ }).getByRole('link', { name: 'Replace the node' }).click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Maintenance')
  await expect(page).toHaveURL(/node.replace/)
})

test('a kept disk is deleted', async ({ page, director }) => {
  director.ctl('delete', 'cluster', 'doomed', '--wait', '--yes')
  await login(page, director, '/infrastructure/disks')
  const table = page.getByRole('table', { name: 'Disks' })
  await expect(table.getByRole('row', { name: /kept/ })).toHaveCount(1)
  await accessible(page)
  await table.getByRole('button', { name: /^Delete / }).click()
  const dialog = page.getByRole('dialog')
  await expect(dialog).toContainText('destroyed with everything on it')
  await dialog.getByRole('button', { name: 'Delete the disk' }).click()
  await expect(page.getByText('No disk has outlived its VM.')).toBeVisible()
})
