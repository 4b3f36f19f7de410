// Flow 1 from an empty director, by keyboard alone: from the one-time password to the documents of the first cluster.
import { Director } from './director'
import { accessible, expect, tabTo, test as base } from './fixtures'

const test = base.extend<object, { director: Director }>({
  director: [
    async ({}, use) => {
      const director = new Director([])
      await director.start()
      await use(director)
      await director.stop()
    },
    { scope: 'worker' },
  ],
})

test('from the first log-in to the first cluster of an empty director, by keyboard alone', async ({
  page,
  director,
}) => {
  director.settle()
  const made = JSON.parse(director.ctl('users', 'create', 'eve', '--role', 'admin', '-o', 'json')) as {
    password: string
  }
  const type = async (field: string, value: string) => {
    await tabTo(page, field)
    await page.keyboard.press('Control+a')
    await page.keyboard.type(value)
  }
  const press = async (name: string) => {
    await tabTo(page, name)
    await page.keyboard.press('Enter')
  }

  await page.goto('/')
  await expect(page.getByLabel('User')).toBeFocused()
  await page.keyboard.type('eve')
  await type('Password', made.password)
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'Choose a password', exact: true })).toBeVisible()
  await type('Current password', made.password)
  await type('New password', director.password)
  await type('New password again', director.password)
  await press('Go on')

  await expect(page.getByRole('heading', { name: 'There is no cluster yet' })).toBeVisible()
  await press('Set up the first cluster')
  await expect(page.getByRole('heading', { name: 'The hypervisor', exact: true })).toBeVisible()
  const text = page.getByRole('textbox', { name: 'Documents' })
  await type('Name', 'rack')
  await type('Address of libvirt', 'qemu:///system')
  await expect(text).toContainText('provider: rack')
  await press('Next: Network')
  await expect(page.getByRole('heading', { name: 'The network of the nodes', exact: true })).toBeVisible()
  await type('Range', '10.90.0.0/24')
  await type('Gateway', '10.90.0.1')
  await type('First address for nodes', '10.90.0.10')
  await type('Last address for nodes', '10.90.0.90')
  await press('Next: Image and release')
  await expect(page.getByRole('heading', { name: 'The release', exact: true })).toBeVisible()
  await press('Next: Cluster')
  await expect(page.getByRole('heading', { name: 'The cluster', exact: true })).toBeVisible()
  await type('Name', 'shop')
  await type('Workers', '2')
  await expect(text).toContainText('name: shop')
  await press('Next: Look at it, and store it')
  await expect(page.getByRole('heading', { name: 'The plan for shop' })).toBeVisible()
  await accessible(page)
  await press('Store and plan')
  // The bundle is not on this machine: its plan is made in secondCluster.spec.ts.
  await expect(page.getByText('The documents are stored.')).toBeVisible()
  expect(director.ctl('get', 'clusters')).toContain('shop')
})
