// Flow 4: choose nodes, rehearse the drain, change options, rehearse again, read about the quorum, plan; and what is
// still cordoned afterwards.
import { accessible, expect, login, picture, tabTo, test } from './fixtures'

test.beforeAll(({ director }) => {
  director.settle()
  const made = JSON.parse(director.ctl('plan', 'small', '-o', 'json')) as { id: string }
  director.ctl('start', made.id, '--wait', '--yes')
})

test('a maintenance, by mouse', async ({ page, director }) => {
  await login(page, director, '/clusters/small/nodes')
  await page.getByRole('link', { name: 'small-worker-1' }).click()
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('small-worker-1')
  await expect(page.getByText('The VM')).toBeVisible()
  await picture(page, 'node')
  await accessible(page)
  await page.goBack()
  const nodes = page.getByRole('table', { name: 'Nodes' })
  await nodes
    .getByRole('row', { name: /small-worker-1/ })
    .getByRole('checkbox')
    .check()
  await nodes
    .getByRole('row', { name: /small-worker-2/ })
    .getByRole('checkbox')
    .check()
  await page.getByRole('link', { name: 'Work on 2 nodes' }).click()
  await expect(page.getByText(/No master is among them.*etcd has 1 member/)).toBeVisible()

  await page.getByRole('button', { name: /^Rehearse the drain of 2 nodes/ }).click()
  await expect(page.getByText('2 pods would leave, 4 would stay.')).toBeVisible()
  await expect(page.getByRole('table', { name: 'Pods that would stay' })).toContainText('cache-0')
  await picture(page, 'maintenance')
  await accessible(page)
  await page.getByLabel('Allow the loss of local data').check()
  await expect(page.getByText('Nodes or options have changed since this rehearsal.')).toBeVisible()
  await accessible(page)
  await page.getByRole('button', { name: 'Rehearse again' }).click()
  await expect(page.getByText('4 pods would leave, 2 would stay (4 before).')).toBeVisible()
  await expect(page.getByLabel('The same with directorctl')).toHaveValue(
    'directorctl node drain small small-worker-1 small-worker-2 --delete-emptydir-data',
  )
  expect(page.url()).toContain('emptydir=1')

  await page.getByLabel('Add a node').selectOption('small-master-1')
  await expect(page.getByText(/etcd loses its quorum/)).toBeVisible()
  await page.getByRole('button', { name: 'Leave small-master-1 out' }).click()
  await page.getByLabel('Operation').selectOption('Delete')
  await page.getByLabel('Operation').selectOption('Drain')
  await page.getByRole('button', { name: 'Make the plan' }).click()
  await expect(page.getByRole('heading', { name: 'Agree to it' })).toBeVisible()
  // What its drains would do stands in the plan, before the click: with the options that it was made with.
  await expect(page.getByText('4 pods would leave, 2 would stay.')).toBeVisible()
  await expect(page.getByRole('table', { name: 'Pods that would stay' })).toContainText('db-0')
  await page.getByRole('button', { name: 'Show the pods that would leave' }).click()
  await expect(page.getByRole('table', { name: 'Pods that would leave' })).toContainText('web-5d9f')
  await accessible(page)
})

test('a maintenance, by keyboard alone', async ({ page, director }) => {
  await login(page, director, '/clusters/small/nodes/small-worker-2')
  await tabTo(page, 'Drain')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Maintenance')
  await tabTo(page, 'Rehearse the drain of small-worker-2')
  await page.keyboard.press('Enter')
  await expect(page.getByText('1 pod would leave, 2 would stay.')).toBeVisible()
  await tabTo(page, 'Make the plan')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'Agree to it' })).toBeVisible()
})
