// Flow 1 from an empty director, by keyboard alone: from the one-time password to the first cluster that is ready.
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Locator, Page } from '@playwright/test'
import { Director } from './director'
import { accessible, expect, picture, tabTo, test as base } from './fixtures'
import { nodeImage } from './nodeImage'

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

// bundleArchive is the archive of a release bundle, which another rehearsing director has made.
async function bundleArchive(into: string): Promise<string> {
  const documents = join(into, 'release.yaml')
  writeFileSync(
    documents,
    'apiVersion: kaas/v1\nkind: Release\nmetadata: {name: k8s-1.37.1}\n' +
      'spec: {bundle: /nowhere/k8s-1.37.1, kubernetes: v1.37.1}\n---\n' +
      'apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: sim}\nspec: {type: sim, sim: {hosts: [{name: h1}]}}\n',
  )
  const other = new Director([documents])
  await other.start()
  try {
    const bundle = readdirSync(other.dir, { recursive: true, encoding: 'utf8' }).find((f) =>
      /bundles.k8s-1.37.1$/.test(f),
    )
    if (!bundle) throw new Error('the other director has made no bundle')
    const archive = join(into, 'k8s.tar')
    other.ctl('release', 'pack', join(other.dir, bundle), archive)
    return archive
  } finally {
    await other.stop()
  }
}

// keys are what a person does without a mouse.
function keys(page: Page) {
  const press = async (name: string, key = 'Enter') => {
    await tabTo(page, name)
    await page.keyboard.press(key)
  }
  return {
    press,
    type: async (field: string, value: string) => {
      await tabTo(page, field)
      await page.keyboard.press('Control+a')
      await page.keyboard.type(value)
    },
    // A list takes the first entry that begins with what is typed.
    choose: async (field: string, beginning: string) => {
      await tabTo(page, field)
      await page.keyboard.type(beginning)
    },
    file: async (field: string, path: string) => {
      await tabTo(page, field)
      const asked = page.waitForEvent('filechooser')
      await page.keyboard.press('Enter')
      await (await asked).setFiles(path)
    },
  }
}

// isWrong looks for a problem at the field that has the focus, and at the line of the text.
async function isWrong(page: Page, field: Locator, says: RegExp) {
  await expect(field).toBeFocused()
  await expect(field).toHaveAttribute('aria-invalid', 'true')
  await expect(field).toHaveAccessibleDescription(says)
  await expect(page.locator('.cm-lint-marker-error').first()).toBeVisible()
}

test('from the first log-in to the first cluster of an empty director, by keyboard alone', async ({
  page,
  director,
}) => {
  test.setTimeout(900_000)
  director.settle()
  const image = nodeImage(director.dir)
  const archive = await bundleArchive(director.dir)
  const made = JSON.parse(director.ctl('users', 'create', 'eve', '--role', 'admin', '-o', 'json')) as {
    password: string
  }
  const { press, type, choose, file } = keys(page)

  await page.goto('/')
  await expect(page.getByLabel('User')).toBeFocused()
  await page.keyboard.type('eve')
  await type('Password', made.password)
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { name: 'Choose a password', exact: true })).toBeVisible()
  await type('Current password', made.password)
  await type('New password', director.password)
  await type('New password again', director.password + 'x')
  await expect(page.getByText('The two are not the same.')).toBeVisible()
  await page.keyboard.press('Backspace')
  await press('Go on')

  await expect(page.getByRole('heading', { name: 'There is no cluster yet' })).toBeVisible()
  await press('Set up the first cluster')
  const text = page.getByRole('textbox', { name: 'Documents' })

  // The vCenter: its address, its account, and what it has.
  await expect(page.getByRole('heading', { name: 'The hypervisor', exact: true })).toBeVisible()
  await choose('What runs the VMs', 'vSphere')
  await type('Name', 'center')
  await type('Address of the vCenter', 'http://vcenter.example.org/sdk')
  await expect(text).toContainText('provider: center')
  const address = page.getByLabel('Address of the vCenter')
  await isWrong(page, address, /https:/)
  await picture(page, 'keys-problem')
  await accessible(page)
  await page.keyboard.press('Home')
  for (let i = 0; i < 'http'.length; i++) await page.keyboard.press('ArrowRight')
  await page.keyboard.type('s')
  await expect(address).not.toHaveAttribute('aria-invalid', 'true')
  await press('Set the credentials vcenter')
  await expect(page.getByRole('dialog')).toBeVisible()
  await type('User', 'kaas@vsphere.local')
  await type('Password', 'a secret of vCenter')
  await page.keyboard.press('Enter')
  await expect(page.getByText('They are set.')).toBeVisible()
  await expect(page.getByRole('button', { name: 'Set the credentials vcenter' })).toBeFocused()
  await press('Look at what it has')
  await expect(page.getByText('The choices are what center has')).toBeVisible()
  await choose('Datacenter', '/DC1')
  await choose('Cluster of hosts', '/DC1/host')
  await choose('Datastore', 'Type another name')
  const store = page.getByLabel('Datastore')
  await expect(store).toHaveJSProperty('tagName', 'INPUT')
  await expect(store).toBeFocused()
  await page.keyboard.press('Control+a')
  await page.keyboard.type('none')
  await expect(store).toHaveAccessibleDescription(/shows no datastore of this name/)
  await press('Choose from what was found')
  await expect(store).toHaveJSProperty('tagName', 'SELECT')
  await expect(store).toBeFocused()
  await page.keyboard.type('/DC1/datastore')
  await expect(text).toContainText('/DC1/datastore/datastore1')
  await accessible(page)
  await picture(page, 'keys-vcenter')

  await press('Next: Network')
  await expect(page.getByRole('heading', { name: 'The network of the nodes', exact: true })).toBeVisible()
  await choose('Mode', 'portgroup')
  await choose('Port group', '/DC1')
  await expect(text).toContainText('portGroup: /DC1/network/nodes')
  await type('Range', '10.90.0.0/33')
  await isWrong(page, page.getByLabel('Range'), /10\.90\.0\.0\/33/)
  await page.keyboard.press('Backspace')
  await page.keyboard.press('Backspace')
  await page.keyboard.type('24')
  await type('Gateway', '10.90.0.1')
  await type('First address for nodes', '10.90.0.10')
  await type('Last address for nodes', '10.90.0.90')
  // The Tab key indents in the editor, which says how to leave it.
  await tabTo(page, 'Documents')
  await expect(text).toHaveAccessibleDescription('Escape and then Tab leaves the editor.')
  await page.keyboard.press('Escape')
  await page.keyboard.press('Tab')
  await expect(text).not.toBeFocused()

  // The image and the bundle are sent from this machine, and taken.
  await press('Next: Image and release')
  await expect(page.getByRole('heading', { name: 'The release', exact: true })).toBeVisible()
  await press('Import an image')
  await expect(page.getByRole('heading', { name: 'Import an image' })).toBeVisible()
  await file('Image: qcow2, raw, VMDK or OVA', image)
  await choose('Trust', 'It has no')
  await type('Why it is used without a signature, in three words or more', 'it is a test')
  await press('Import')
  await expect(page.getByText('The image is on the director.')).toBeVisible({ timeout: 180_000 })
  await expect(page.getByRole('button', { name: 'Import', exact: true })).toBeFocused()
  await accessible(page)
  await press('Back to the new cluster')
  await expect(page.getByRole('heading', { name: 'The image', exact: true })).toBeVisible()
  await expect(page.getByLabel('An image that was imported')).toBeVisible()
  await choose('An image that was imported', 'v1.37.1')
  await expect(page.getByLabel('SHA-256 of the file')).not.toHaveValue(/^0+$/)
  await type('Name', 'node-1.37.1')
  await press('Import a bundle')
  await expect(page.getByRole('heading', { name: 'Import a release bundle' })).toBeVisible()
  await file('Archive, as directorctl release pack writes it', archive)
  await choose('Trust', 'It has no')
  await type('Why it is used without a signature, in three words or more', 'it is a test')
  await press('Import')
  await expect(page.getByText('The bundle is on the director.')).toBeVisible({ timeout: 180_000 })
  await press('Back to the new cluster')
  await expect(page.getByLabel('A bundle that was imported')).toBeVisible()
  await choose('A bundle that was imported', 'k8s-1.37.1')
  await expect(page.getByLabel('Digest of an imported bundle')).not.toHaveValue(/^0+$/)
  await expect(page.getByLabel('Its version of Kubernetes')).toHaveValue('v1.37.1')
  await accessible(page)
  await picture(page, 'keys-image')

  await press('Next: Cluster')
  await expect(page.getByRole('heading', { name: 'The cluster', exact: true })).toBeVisible()
  await type('Name', 'Shop')
  await isWrong(page, page.getByLabel('Name', { exact: true }), /Shop/)
  await type('Name', 'shop')
  await type('Workers', '2')
  await expect(text).toContainText('name: shop')
  await expect(text).toContainText('image: node-1.37.1')
  await press('Next: Look at it, and store it')
  await expect(page.getByRole('heading', { name: 'The plan for shop' })).toBeVisible()
  await accessible(page)
  await press('Store and plan')

  await expect(page.getByRole('heading', { name: 'Agree to it' })).toBeVisible()
  await press('Start')
  await expect(page.locator('[data-status=done]').first()).toBeVisible({ timeout: 180_000 })
  await press('shop')
  await expect(page.getByRole('heading', { level: 1, name: 'shop' })).toBeVisible()
  await expect(page.locator('[data-status=ready]').first()).toBeVisible()
})
