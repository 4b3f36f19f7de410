// A cluster on what the director has already, from the list of clusters to its plan.
import { expect, login, tabTo, test } from './fixtures'

test.beforeAll(({ director }) => director.settle())

test('another cluster on what is there, by keyboard alone', async ({ page, director }) => {
  await login(page, director, '/clusters')
  await tabTo(page, 'New cluster')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'The cluster', exact: true })).toBeVisible()
  await tabTo(page, 'Name')
  await page.keyboard.press('Control+a')
  await page.keyboard.type('second')
  await expect(page.getByRole('textbox', { name: 'Documents' })).toContainText('name: second')
  await tabTo(page, 'Next: Look at it, and store it')
  await page.keyboard.press('Enter')
  await expect(page.getByText('Cluster/second', { exact: true })).toBeVisible()
  await tabTo(page, 'Store and plan')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'Agree to it' })).toBeVisible()
})
