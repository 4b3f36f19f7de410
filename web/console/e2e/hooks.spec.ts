// What a plan asks a hook waits in the inbox, and a person answers instead of the endpoint.
import { accessible, clusterOf, expect, login, picture, test } from './fixtures'

test.beforeAll(({ director }) => {
  director.settle()
  director.apply(
    clusterOf('asking') +
      `---
apiVersion: kaas/v1
kind: Hook
metadata: {name: cmdb}
spec:
  url: https://127.0.0.1:1/x
  phases: [before.plan]
  select: {clusters: [asking]}
  allow: [127.0.0.1/32]
`,
  )
})

test('a question of a plan is answered in the inbox', async ({ page, director }) => {
  const made = JSON.parse(director.ctl('plan', 'asking', '-o', 'json')) as { id: string }
  director.ctl('start', made.id, '--yes')
  await login(page, director)
  const questions = page.getByRole('table', { name: 'Questions of plans' })
  const row = questions.getByRole('row', { name: /cmdb/ })
  await expect(row).toContainText('before.plan')
  await expect(row).toContainText('asking')
  await accessible(page)
  await picture(page, 'inbox-question')
  await row.getByRole('button').click()
  await page.getByRole('menuitem', { name: 'Continue' }).click()
  const dialog = page.getByRole('dialog')
  await expect(dialog).toContainText('You answer instead of the hook cmdb, for before.plan of asking.')
  await dialog.getByLabel('Reason').fill('ticket 4711')
  await expect(dialog.getByLabel('The same with directorctl')).toHaveValue(/hooks answer .* continue --reason /)
  await dialog.getByRole('button', { name: 'Continue' }).click()
  await expect(questions).toHaveCount(0)
  await page.goto('/hooks')
  const told = page.getByRole('row', { name: /before\.plan/ }).first()
  await expect(told).toContainText('continue')
  await expect(told).toContainText('ticket 4711')
  await page.goto(`/plans/${made.id}`)
  await expect(page.locator('[data-status=done]').first()).toBeVisible({ timeout: 180_000 })
})
