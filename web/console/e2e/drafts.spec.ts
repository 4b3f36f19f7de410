// What is typed outlives a reload, the crash of a tab and the end of a session; two tabs do not lose each other's text.
import type { Page } from '@playwright/test'
import { accessible, expect, login, picture, test } from './fixtures'

test.beforeAll(({ director }) => director.settle())

const name = (page: Page) => page.getByLabel('Name', { exact: true })

// stored waits until the browser has kept the text.
async function stored(page: Page, text: string): Promise<void> {
  await expect
    .poll(() =>
      page.evaluate(async () => {
        const db = await new Promise<IDBDatabase>((resolve, reject) => {
          const request = indexedDB.open('director', 1)
          request.onsuccess = () => resolve(request.result)
          request.onerror = () => reject(new Error('no database'))
        })
        const all = await new Promise<{ text: string }[]>((resolve) => {
          const got = db.transaction('drafts').objectStore('drafts').getAll()
          got.onsuccess = () => resolve(got.result as { text: string }[])
        })
        db.close()
        return all.map((d) => d.text).join('\n---\n')
      }),
    )
    .toContain(text)
}

test('a draft outlives the crash of its tab and the end of the session', async ({ context, page, director }) => {
  await login(page, director, '/apply?template=Network')
  await name(page).fill('crashing')
  await stored(page, 'name: crashing')
  await page.goto('chrome://crash').catch(() => undefined) // the process of the tab ends here
  const next = await context.newPage()
  await next.goto('/apply?template=Network')
  await expect(next.getByText('This is the draft that you left here.')).toBeVisible()
  await expect(name(next)).toHaveValue('crashing')
  await next.getByRole('button', { name: 'admin' }).click()
  await next.getByRole('menuitem', { name: 'Log out' }).click()
  await expect(next.getByLabel('User')).toBeVisible() // another page before that would cut the log-out off
  await next.goto('/apply?template=Network')
  await next.getByLabel('User').fill('admin')
  await next.getByLabel('Password').fill(director.password)
  await next.getByRole('button', { name: 'Log in' }).click()
  await expect(name(next)).toHaveValue('crashing')
  await next.getByRole('button', { name: 'Start again' }).click()
  await expect(name(next)).toHaveValue('net1')
})

test('two tabs do not lose what the other has written', async ({ context, page, director }) => {
  await login(page, director, '/apply?template=Project')
  const editor = (p: Page) => p.getByRole('textbox', { name: 'New Project' })
  await expect(editor(page)).toContainText('kind: Project')
  const second = await context.newPage()
  await second.goto('/apply?template=Project')
  await expect(editor(second)).toContainText('kind: Project')
  await editor(page).press('Control+End')
  await page.keyboard.type('# of the first')
  await stored(page, '# of the first')
  await expect(second.getByText('Another tab has changed this draft.')).toBeVisible()
  await editor(second).press('Control+End')
  await second.keyboard.type('# of the second')
  await stored(page, '# of the first')
  await accessible(second)
  await picture(second, 'draft-two-tabs')
  await second.getByRole('button', { name: 'Keep the text of this tab' }).click()
  await stored(second, '# of the second')
  await expect(page.getByText('Another tab has changed this draft.')).toBeVisible()
  await page.getByRole('button', { name: 'Take its text' }).click()
  await expect(editor(page)).toContainText('# of the second')
  await editor(page).press('Control+End')
  await page.keyboard.type(', and more')
  await stored(page, '# of the second, and more')
})

test('a secret is never stored, and drafts can be listed and deleted', async ({ page, director }) => {
  await login(page, director, '/apply?template=Provider')
  await expect(page.getByLabel('Address of libvirt')).toHaveValue('qemu:///system')
  await page.getByLabel('Address of libvirt').fill('qemu+ssh://root@rack/system')
  await stored(page, 'qemu+ssh://root@rack/system')
  await page.getByLabel('Address of libvirt').fill('qemu+ssh://root:hunter2@rack/system')
  await expect(page.getByText('There seems to be a secret in the text.')).toBeVisible()
  await accessible(page)
  const everything = await page.evaluate(async () => {
    const db = await new Promise<IDBDatabase>((resolve) => {
      const request = indexedDB.open('director', 1)
      request.onsuccess = () => resolve(request.result)
    })
    const all = await new Promise<unknown>((resolve) => {
      const got = db.transaction('drafts').objectStore('drafts').getAll()
      got.onsuccess = () => resolve(got.result)
    })
    db.close()
    return JSON.stringify([all, Object.entries(localStorage), Object.entries(sessionStorage)])
  })
  expect(everything).not.toContain('hunter2')
  await page.getByLabel('Address of libvirt').fill('qemu+ssh://root@rack2/system')
  await stored(page, 'qemu+ssh://root@rack2/system')

  await page.goto('/settings')
  const drafts = page.getByRole('table', { name: 'Drafts' })
  await expect(drafts.getByRole('link', { name: 'New Provider' })).toBeVisible()
  await drafts.scrollIntoViewIfNeeded()
  await accessible(page)
  await picture(page, 'drafts')
  await drafts.getByRole('link', { name: 'New Provider' }).click()
  await expect(page.getByLabel('Address of libvirt')).toHaveValue('qemu+ssh://root@rack2/system')
  await page.goto('/settings')
  await page.getByRole('button', { name: 'Delete the draft New Provider' }).click()
  await expect(page.getByText('There are no drafts.')).toBeVisible()
  await page.goto('/apply?template=Provider')
  await expect(page.getByLabel('Address of libvirt')).toHaveValue('qemu:///system')
})

test('a draft that was not touched for a month is gone', async ({ page, director }) => {
  await login(page, director, '/apply?template=Network')
  await name(page).fill('forgotten')
  await stored(page, 'name: forgotten')
  await page.evaluate(async () => {
    const db = await new Promise<IDBDatabase>((resolve) => {
      const request = indexedDB.open('director', 1)
      request.onsuccess = () => resolve(request.result)
    })
    await new Promise<void>((resolve) => {
      const tx = db.transaction('drafts', 'readwrite')
      const cursor = tx.objectStore('drafts').openCursor()
      cursor.onsuccess = () => {
        const at = cursor.result
        if (!at) return
        at.update({ ...(at.value as object), at: Date.now() - 31 * 86_400_000 })
        at.continue()
      }
      tx.oncomplete = () => resolve()
    })
    db.close()
  })
  await page.reload()
  await expect(name(page)).toHaveValue('net1')
  await page.goto('/settings')
  await expect(page.getByText('There are no drafts.')).toBeVisible()
})
