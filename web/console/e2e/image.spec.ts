import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { accessible, expect, login, picture, test } from './fixtures'
import { nodeImage } from './nodeImage'

const dir = mkdtempSync(join(tmpdir(), 'director-image-'))
test.beforeAll(({ director }) => director.settle())
test.afterAll(() => rmSync(dir, { recursive: true, force: true }))

test('a node image is imported, and its document written', async ({ page, director }) => {
  const image = nodeImage(dir)
  await login(page, director, '/infrastructure/images')
  await page.getByRole('link', { name: 'Import an image' }).click()
  await page.locator('#image-file').setInputFiles(image)
  await page.getByLabel('Trust').selectOption('unsigned')
  await page.locator('#image-reason').fill('two words')
  await expect(page.getByRole('button', { name: 'Import' })).toBeDisabled()
  await page.locator('#image-reason').fill('it is a test')
  await page.getByRole('button', { name: 'Import' }).click()
  await expect(page.getByText('The image is on the director.')).toBeVisible({ timeout: 180_000 })
  await picture(page, 'image-import')
  await accessible(page)
  await page.getByRole('link', { name: 'Write the document that clusters name' }).click()
  await expect(page.getByRole('heading', { name: 'What would change' })).toBeVisible()
  await page.getByRole('button', { name: 'Apply' }).click()
  await expect(page.getByText('Stored.')).toBeVisible()
  await page.goto('/infrastructure/images')
  await expect(page.getByRole('table', { name: 'Images' })).toContainText('debian12-k8s-1.37.1')
})

test('what is no image is refused, and says so', async ({ page, director }) => {
  const file = join(dir, 'letter.txt')
  writeFileSync(file, 'Dear director, '.repeat(10_000))
  await login(page, director, '/images/import')
  await page.locator('#image-file').setInputFiles(file)
  await page.getByLabel('Trust').selectOption('unsigned')
  await page.locator('#image-reason').fill('it is a test')
  await page.getByRole('button', { name: 'Import' }).click()
  await expect(page.getByRole('alert')).toContainText(/image/)
})

test('the director computes the checksum of a file that was sent without one, and a person compares it', async ({
  page,
  director,
}) => {
  const image = nodeImage(dir)
  const sum = createHash('sha256').update(readFileSync(image)).digest('hex')
  await login(page, director, '/images/import')
  const send = async () => {
    await page.locator('#image-file').setInputFiles(image)
    await page.getByLabel('Trust').selectOption('unsigned')
    await page.locator('#image-reason').fill('it is a test')
    await page.getByLabel('Checksum', { exact: true }).selectOption('after')
    await page.getByRole('button', { name: 'Import', exact: true }).click()
    await expect(page.getByText(sum)).toBeVisible()
  }
  await send()
  await page.getByLabel('What its publisher says').fill('0'.repeat(64))
  await expect(page.getByText('It is another one')).toBeVisible()
  await expect(page.getByRole('button', { name: 'It is right: import' })).toBeDisabled()
  await accessible(page)
  await picture(page, 'image-compare')
  await page.getByRole('button', { name: 'Throw the file away' }).click()
  await expect(page.getByText(sum)).toBeHidden()
  await send()
  await page.getByLabel('What its publisher says').fill(`${sum}  node.qcow2`)
  await expect(page.getByText('It is the same.')).toBeVisible()
  await page.getByRole('button', { name: 'It is right: import' }).click()
  await expect(page.getByText('The image is on the director.')).toBeVisible({ timeout: 180_000 })
})

test('an upload that the end of the director cuts off continues', async ({ page, director }) => {
  const image = nodeImage(dir)
  const raw = join(dir, 'disk') // what cannot be left out of the image, behind its partitions
  execFileSync('dd', ['if=/dev/urandom', `of=${raw}`, 'bs=1M', 'seek=512', 'count=256', 'conv=notrunc', 'status=none'])
  execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', raw, image])
  await login(page, director, '/images/import')
  await page.locator('#image-file').setInputFiles(image)
  await page.getByLabel('Trust').selectOption('unsigned')
  await page.locator('#image-reason').fill('it is a test')
  await page.getByRole('button', { name: 'Import', exact: true }).click()
  await expect(page.getByText('Sending')).toBeVisible({ timeout: 180_000 })
  await expect(page.getByText(/^(16|32|48|64|80|96|112|128) MiB of 2[5-6]\d(\.\d)? MiB$/)).toBeVisible({
    timeout: 180_000,
  })
  await director.kill()
  await director.start()
  await expect(page.getByText('The image is on the director.')).toBeVisible({ timeout: 180_000 })
})
