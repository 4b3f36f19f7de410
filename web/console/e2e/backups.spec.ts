// Backups and certificates: a backup is read to its end, restored by a plan, and deleted; authorities are changed.
import { accessible, entry, expect, login, picture, test } from './fixtures'

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
    await page.getByRole('menuitem', { name: entry(name) }).click()
  }
  await verb('Read to its end')
  await expect(row.getByText('damaged')).toHaveCount(0)

  await verb('Take objects out')
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Namespace').fill('default')
  await dialog.getByLabel('Your password').fill('wrong')
  await dialog.getByRole('button', { name: 'Download' }).click()
  await expect(dialog.getByRole('alert')).toContainText('password')
  await accessible(page)
  await dialog.getByLabel('Your password').fill(director.password)
  await dialog.getByRole('button', { name: 'Download' }).click()
  // The snapshot of a pretended cluster is none of etcd's.
  await expect(dialog.getByRole('alert')).toContainText('the snapshot cannot be read')
  await dialog.getByRole('button', { name: 'Cancel' }).click()

  await page.getByRole('button', { name: 'Back up now' }).click()
  await expect(dialog).toContainText('every target of the cluster')
  await dialog.getByRole('button', { name: 'Make the plan' }).click()
  await page.getByRole('button', { name: 'Start', exact: true }).click()
  await expect(page.getByText('done', { exact: true }).first()).toBeVisible({ timeout: 180_000 })
  await page.goto('/backups')
  await expect(table.getByRole('row')).toHaveCount(3)
  const second = JSON.parse(director.ctl('backup', 'list', '-o', 'json')) as { items: { id: string }[] }
  director.ctl('backup', 'delete', second.items[0]?.id ?? '', '--yes')
  await page.reload()
  await expect(table.getByRole('row')).toHaveCount(2)

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
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Which are renewed').selectOption('date')
  await expect(dialog.getByRole('button', { name: 'Make the plan' })).toBeDisabled()
  await dialog.getByLabel('Before').fill('2099-01-01')
  await accessible(page)
  await dialog.getByRole('button', { name: 'Make the plan' }).click()
  await expect(page.getByRole('heading', { level: 1 })).toContainText(/certificates/i)
})

test('each authority and key of a cluster is changed by a plan', async ({ page, director }) => {
  await login(page, director, '/clusters/small/certificates')
  const dialog = page.getByRole('dialog')
  for (const [value, words] of [
    ['cluster.ca', 'Pods get it as kube-root-ca.crt.'],
    ['cluster.etcd_ca', "etcd's members"],
    ['cluster.front_proxy_ca', 'extension API servers'],
    ['cluster.ssh_authority', 'Exported inventories open no node after it.'],
    ['cluster.encryption_key', 'Secrets in etcd are encrypted again'],
    ['cluster.service_account_key', 'API servers restart one by one.'],
    ['cluster.rotate_pull_password', 'with the authorities that the director has'],
  ] as const) {
    await page.goto('/clusters/small/certificates')
    await page.getByRole('button', { name: 'Change an authority or a key' }).click()
    await dialog.getByLabel('What is changed').selectOption(value)
    await expect(dialog).toContainText(words)
    if (value === 'cluster.ca') await accessible(page)
    await dialog.getByRole('button', { name: 'Make the plan' }).click()
    await expect(page).toHaveURL(/\/plans\//)
    const id = page.url().replace(/.*\/plans\/([^/?]+).*/, '$1')
    const plans = JSON.parse(director.ctl('plans', '-o', 'json')) as { items: { id: string; operation: string }[] }
    expect(plans.items.find((p) => p.id === id)?.operation).toBe(value)
    director.ctl('discard', id)
  }
})

test("the director's own authority is changed in its stages", async ({ page, director }) => {
  await login(page, director, '/certificates')
  const card = page.locator('section').filter({ hasText: 'The authority of the director itself' }).last()
  const table = card.getByRole('table', { name: 'Authorities of the director' })
  const dialog = page.getByRole('dialog')
  const command = dialog.getByLabel('The same with directorctl')
  const stage = () => (JSON.parse(director.ctl('ca', 'director', '-o', 'json')) as { stage: string }).stage
  await expect(card.getByText('no change')).toBeVisible()
  await expect(card.getByRole('button', { name: 'Ask all nodes what they trust' })).toHaveCount(0)

  await card.getByRole('button', { name: 'Begin a change' }).click()
  await expect(command).toHaveValue('directorctl ca director trust')
  await expect(dialog.getByRole('checkbox')).toHaveCount(0)
  await dialog.getByRole('button', { name: 'Cancel' }).click()
  expect(stage()).toBe('none')
  await card.getByRole('button', { name: 'Begin a change' }).click()
  await dialog.getByRole('button', { name: 'Begin a change' }).click()
  await expect(card.getByText('both are trusted')).toBeVisible()
  await expect(table.getByRole('row')).toHaveCount(3)
  director.ctl('ca', 'pin') // as everyone does before the former one is gone
  await card.getByRole('button', { name: 'Ask all nodes what they trust' }).click()
  await expect(card.getByRole('status')).toContainText('No node lacks the next authority.')
  await accessible(page)
  await picture(page, 'director-authority')

  await card.getByRole('button', { name: 'Use the next one' }).click()
  await dialog.getByLabel('Leave nodes behind that do not trust the next authority').check()
  await expect(command).toHaveValue('directorctl ca director use --force')
  await accessible(page)
  await dialog.getByRole('button', { name: 'Use the next one' }).click()
  await expect(card.getByText('the next one signs')).toBeVisible()
  expect(stage()).toBe('use')

  await card.getByRole('button', { name: 'Drop the former one' }).click()
  await dialog.getByRole('button', { name: 'Drop the former one' }).click()
  await expect(card.getByText('no change')).toBeVisible()
  await expect(table.getByRole('row')).toHaveCount(2)
  expect(stage()).toBe('none')
})
