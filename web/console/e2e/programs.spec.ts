import { expect, login, test } from './fixtures'

test.beforeAll(({ director }) => director.settle())

// A person types the code of directorctl, and it gets a session; a wrong code finds nothing, and a link fills in none.
test('let directorctl in with a code', async ({ page, director, request }) => {
  const form = async (path: string, fields: Record<string, string>) => {
    const answer = await request.post(`${director.url}/oidc${path}`, {
      form: { client_id: 'directorctl', ...fields },
      ignoreHTTPSErrors: true,
    })
    return (await answer.json()) as Record<string, string>
  }
  const begun = await form('/device', { host: 'build-7' })
  const code = begun.user_code ?? ''
  await login(page, director, `/approve?user_code=${code}`)
  await expect(page.getByLabel('Code')).toHaveValue('')
  await page.getByLabel('Code').fill('BCDF-GHJK')
  await page.getByRole('button', { name: 'Continue' }).click()
  await expect(page.getByText('No program waits with this code', { exact: false }).first()).toBeVisible()
  await page.getByLabel('Code').fill(code.toLowerCase())
  await page.getByRole('button', { name: 'Continue' }).click()
  await expect(page.getByText('Let directorctl on host build-7 in as admin?')).toBeVisible()
  await page.getByRole('button', { name: 'Let it in' }).click()
  await expect(page.getByText('directorctl is let in.', { exact: false })).toBeVisible()
  const token = await form('/token', {
    grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
    device_code: begun.device_code ?? '',
  })
  expect(token.access_token).toMatch(/^kaas_/)
})
