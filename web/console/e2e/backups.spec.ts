// Backups and certificates: a backup is read to its end, restored by a plan, and deleted.
import { accessible, expect, login, picture, test } from './fixtures'

test.beforeAll(({ director }) => {
  director.settle()
  director.apply(`apiVersion: kaas/v1
kind: BackupTarget
metadata: {name: near}
spec: {type: directory, directory: ${director.dir}/backups/near}
`)
  const small = director.ctl('get', 'cluster', 'small', '-o', 'yaml')
  director.apply(small.replace('\nspec:\n', '\nspec:\n  backup: {targets: [near]}\n'))
  const made = JSON.parse(director.ctl('plan', 'small', '-o', 'json')) as { id: string }
  director.ctl('start', made.id, '--wait', '--yes')
  director.ctl('backup', 'create', 'small', '--wait', '--yes')
})

test('a backup is read, restored and deleted', async ({ page, director }) => {
  await login(page, director, '/backups')
  const table = page.getByRole('table', { name: 'Backups' })
  const row = table.getByRole('row', { name: /asked for/ })
  await expect(row).toContainText('small')
  await expect(page.getByText('are in time.')).toBeVisible()
  await accessible(page)
  await picture(page, 'backups')

  const verb = async (name: string) => {
    await row.getByRole('button', { name: /toggle/ }).click()
    await page.getByRole('menuitem', { name, exact: true }).click()
  }
  await verb('Read to its end')
  await expect(row.getByText('damaged')).toHaveCount(0)
  await verb('Restore')
  await expect(page.getByText('What changed in the cluster since then is lost.')).toBeVisible()
  await page.getByRole('button', { name: 'Make the plan' }).click()
  await expect(page.getByRole('heading', { name: 'Agree to it' })).toBeVisible()
  await expect(page.getByLabel(/I agree: it restores the state of cluster small/)).toBeVisible()

  await page.goto('/backups')
  await verb('Delete')
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await expect(page.getByText('There is no backup.')).toBeVisible()
})

test('certificates say when they end', async ({ page, director }) => {
  await login(page, director, '/certificates')
  await expect(page.getByRole('table', { name: 'Certificates' }).getByText('the director').first()).toBeVisible()
  await page.getByLabel('Ends', { exact: true }).selectOption('0')
  await expect(page.getByText('There is no such certificate.')).toBeVisible()
  await page.goto('/certificates?cluster=small')
  await accessible(page)
  await picture(page, 'certificates')
  await page.getByRole('button', { name: 'Renew' }).click()
  await expect(page.getByText('masters one by one, then workers')).toBeVisible()
})
