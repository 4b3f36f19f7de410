// A person of an OpenID Connect provider, which is a real one, in a browser.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from '@playwright/test'
import { accessible, expect, login, picture, test } from './fixtures'

interface Provider {
  issuer: string
  ca: string
  client: string
  secret: string
}

let running: ChildProcess

test.beforeAll(async ({ director }) => {
  director.settle()
  const program = join(import.meta.dirname, '../../../bin/test-provider')
  const p = spawn(program, [`${director.url}/api/v1/session/callback`], { stdio: ['pipe', 'pipe', 'inherit'] })
  running = p
  const [line] = (await once(p.stdout, 'data')) as [Buffer]
  const provider = JSON.parse(line.toString()) as Provider
  director.others.push(provider.issuer)
  const file = join(director.dir, 'provider.secret')
  writeFileSync(file, provider.secret)
  director.ctl('provider', 'credentials', 'set', 'corp', '--user', provider.client, '--password-file', file)
  director.apply(`apiVersion: kaas/v1
kind: IdentityProvider
metadata: {name: corp}
spec:
  type: oidc
  title: The company
  issuer: ${provider.issuer}
  credentials: corp
  scopes: [profile, offline_access]
  roles: [{group: ops, role: operator}]
  ca: |
    ${provider.ca.trim().replaceAll('\n', '\n    ')}
`)
})

test.afterAll(() => running.kill())

async function atProvider(page: Page, password: string) {
  await page.locator('input[name=username]').fill('Ann')
  await page.locator('input[name=password]').fill(password)
  await page.getByRole('button').click()
}

test('a person of a provider logs in, comes to the page that was asked, and logs out', async ({ page, director }) => {
  await page.goto('/plans?status=parked')
  await expect(page.getByRole('link', { name: 'Log in with The company' })).toBeVisible()
  await accessible(page)
  await picture(page, 'login-provider')
  await page.getByRole('link', { name: 'Log in with The company' }).click()
  await atProvider(page, 'wrong')
  expect(page.url()).not.toContain(director.url)
  await atProvider(page, 'right')
  await expect(page).toHaveURL(`${director.url}/plans?status=parked`)
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Plans')
  const me = page.getByRole('button', { name: 'User ann' })
  await expect(me).toBeVisible()
  await me.click()
  await expect(page.getByRole('menuitem', { name: /^ann/ })).toContainText('operator') // by its group
  await page.getByRole('menuitem', { name: 'Log out' }).click()
  await expect(page.getByRole('link', { name: 'Log in with The company' })).toBeVisible()
})

test('a log-in that nobody began here is refused', async ({ page, director }) => {
  await page.goto('/api/v1/session/callback?code=stolen&state=guessed')
  await expect(page.getByText(/log in again|begin/i).first()).toBeVisible()
  await page.goto('/')
  await expect(page.getByRole('link', { name: 'Log in with The company' })).toBeVisible()
  expect((await page.context().cookies(director.url)).map((c) => c.name)).not.toContain('__Host-director')
})

test('the log-in of a person of the provider is in the audit log', async ({ page, director }) => {
  await login(page, director, '/activity?object=User/ann')
  await expect(page.getByRole('row', { name: /login User.ann/ }).first()).toBeVisible()
})
