import { accessible, expect, picture, test, write } from './fixtures'

test.beforeAll(({ director }) => director.settle())

test('from the first log-in to the first cluster', async ({ page, director }) => {
  const made = JSON.parse(director.ctl('users', 'create', 'eve', '--role', 'admin', '-o', 'json')) as {
    password: string
  }
  await page.goto('/')
  await picture(page, 'login')
  await accessible(page)
  await page.getByLabel('User').fill('eve')
  await page.getByLabel('Password').fill('wrong')
  await page.getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByRole('alert')).toContainText('wrong')
  await page.getByLabel('Password').fill(made.password)
  await page.getByRole('button', { name: 'Log in' }).click()

  await expect(page.getByRole('heading', { name: 'Choose a password', exact: true })).toBeVisible()
  await picture(page, 'password')
  await accessible(page)
  await page.getByLabel('Current password').fill(made.password)
  await page.locator('#password-new').fill(director.password)
  await page.getByLabel('New password again').fill(director.password + 'x')
  await expect(page.getByText('The two are not the same.')).toBeVisible()
  await expect(page.getByRole('button', { name: 'Go on' })).toBeDisabled()
  await page.getByLabel('New password again').fill(director.password)
  await page.getByRole('button', { name: 'Go on' }).click()
  await expect(page.getByRole('heading', { name: 'Inbox' })).toBeVisible()
  await expect(page.getByText('live', { exact: true })).toBeVisible()

  await page.getByRole('link', { name: 'Clusters', exact: true }).click()
  await page.goto('/documents/Cluster')
  await page.getByRole('link', { name: 'New Cluster' }).click()
  const editor = page.getByRole('textbox', { name: 'New Cluster' })
  await write(editor, cluster('first', 'a lot'))
  const wrong = page.getByRole('status').filter({ hasText: 'Line' })
  await expect(wrong).toContainText('spec.masters.memory')
  await expect(page.locator('.cm-lint-marker-error')).toHaveCount(1)
  await expect(page.getByRole('button', { name: 'Apply' })).toBeDisabled()
  await picture(page, 'editor-problem')
  await write(editor, cluster('first', '2GiB'))
  await expect(page.getByText('Cluster/first', { exact: true })).toBeVisible()
  await picture(page, 'editor')
  await accessible(page)
  await page.getByRole('button', { name: 'Apply' }).click()
  await page.getByRole('link', { name: 'Cluster first' }).click()

  await page.getByRole('button', { name: 'Plan', exact: true }).click()
  await expect(page.getByRole('dialog')).toContainText('steps')
  await accessible(page)
  await page.getByRole('button', { name: 'Make the plan' }).click()
  await expect(page.getByRole('heading', { name: 'Agree to it' })).toBeVisible()
  await picture(page, 'plan')
  await accessible(page)
  await page.getByRole('button', { name: 'Start', exact: true }).click()
  await expect(page.locator('[data-status=done]').first()).toBeVisible({ timeout: 180_000 })
  await page.getByRole('main').getByRole('link', { name: 'Nodes', exact: true }).click()
  await expect(page.getByRole('region', { name: 'Nodes and phases' })).toContainText('first-worker')
  await picture(page, 'matrix')
  await accessible(page)
  await page.getByRole('link', { name: 'Timeline', exact: true }).click()
  await expect(page.getByRole('table', { name: 'Timeline' }).locator('[data-status=done]').first()).toBeVisible()
  await picture(page, 'timeline')
  await accessible(page)
  await page.getByRole('link', { name: 'first', exact: true }).click()
  await expect(page.locator('[data-status=ready]').first()).toBeVisible()
  await page.getByRole('main').getByRole('link', { name: 'Nodes', exact: true }).click()
  await expect(page.getByRole('table', { name: 'Nodes' }).getByRole('row')).toHaveCount(4)
  await picture(page, 'nodes')
  await accessible(page)
})

function cluster(name: string, memory: string): string {
  return `apiVersion: kaas/v1
kind: Cluster
metadata:
  name: ${name}
spec:
  release: k8s-1.37
  provider: lab
  image: debian12-k8s-1.37
  network: net1
  masters:
    memory: ${memory}
    disk: 10GiB
  workers:
    - name: worker
      count: 2
      memory: 2GiB
      disk: 10GiB
`
}
