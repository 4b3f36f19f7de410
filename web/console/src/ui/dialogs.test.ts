import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { expect, test } from 'vitest'

// Dialogs without a command, by the words of their titles, and why.
const without: Record<string, string> = {
  'Download your kubeconfig': 'it changes nothing, and the command is next to its button',
  'Delete all drafts?': 'drafts are in this browser alone',
}

interface Dialog {
  title: string
  commands: string[]
}

const root = join(import.meta.dirname, '..')

// dialogsOf finds each Ask in the code of a file, with its title and the commands within.
function dialogsOf(file: string): Dialog[] {
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX)
  const found: Dialog[] = []
  const visit = (node: ts.Node, around?: Dialog) => {
    let within = around
    if (ts.isJsxElement(node) || ts.isJsxSelfClosingElement(node)) {
      const opening = ts.isJsxElement(node) ? node.openingElement : node
      const tag = opening.tagName.getText()
      if (tag === 'Ask') {
        const title = opening.attributes.properties.find((a) => ts.isJsxAttribute(a) && a.name.getText() === 'title')
        within = { title: title?.getText().replace(/^title="?|"$/g, '') ?? '', commands: [] }
        found.push(within)
      }
      if (tag === 'Command' && ts.isJsxElement(node)) {
        within?.commands.push(
          node.children
            .map((c) => c.getText())
            .join('')
            .trim(),
        )
      }
    }
    ts.forEachChild(node, (child) => visit(child, within))
  }
  visit(source)
  return found
}

const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((f) => /\.tsx?$/.test(f) && !f.includes('.test.'))
  .map((f) => join(root, f))
const dialogs = files.filter((f) => f.endsWith('.tsx')).flatMap(dialogsOf)
const code = files.map((f) => readFileSync(f, 'utf8')).join('\n')

test('each dialog has the command that does the same, or a reason for having none', () => {
  expect(dialogs.length).toBeGreaterThan(40)
  expect(dialogs.filter((d) => d.commands.length === 0).map((d) => d.title)).toEqual(Object.keys(without))
})

// The command next to each request that changes something, in a dialog or outside of one, as the code writes it.
const acts: Record<string, string> = {
  'POST /apply': 'directorctl apply -f documents.yaml',
  'POST /audit/verify': 'directorctl audit verify',
  'DELETE /backups/{backup}': 'directorctl backup delete ${of.id}',
  'POST /backups/{backup}/objects': 'directorctl backup extract ${quoted(of.id)}',
  'POST /backups/{backup}/verify': 'directorctl backup verify ${b.id}',
  'POST /campaigns': 'directorctl campaign create',
  'POST /campaigns/{id}/agree': 'directorctl campaign agree ${c.id}',
  'POST /campaigns/{id}/end': 'directorctl campaign ${verb} ${of.id}',
  'POST /campaigns/{id}/pause': 'directorctl campaign ${verb} ${of.id}',
  'POST /campaigns/{id}/resume': 'directorctl campaign resume ${of.id}',
  'POST /campaigns/{id}/skip': 'directorctl campaign skip ${of.id}',
  'POST /certificate-authorities/{name}/certificate': 'directorctl ca import ${quoted(name)}',
  'POST /certificate-authorities/{name}/request': 'directorctl ca csr ${quoted(a.name)}',
  'POST /certificate-authorities/{name}/test': 'directorctl ca test ${quoted(name)}',
  'POST /clusters/{name}/break-glass': 'directorctl kubeconfig ${cluster} --break-glass',
  'POST /clusters/{name}/kubeconfig': 'directorctl kubeconfig ${cluster} --admin',
  'DELETE /clusters/{name}/kubeconfig': 'directorctl access revoke-kubeconfigs ${cluster}',
  'POST /clusters/{name}/plans': 'directorctl plan ${cluster}', // and those of maintenance, backups and rotations
  'POST /consuls/{name}/sync': 'directorctl consul sync ${quoted(of.name)}',
  'POST /consuls/{name}/test': 'directorctl consul test ${quoted(name)}',
  'DELETE /credentials/{name}': 'directorctl provider credentials delete ${quoted(name)}',
  'PUT /credentials/{name}': 'directorctl provider credentials set ${account}',
  'POST /director-authority': 'directorctl ca director ${change.command}',
  'POST /director-authority/verify': 'directorctl ca director --look',
  'DELETE /documents/{kind}/{name}': 'directorctl delete ${kind.toLowerCase()} ${name}',
  'POST /hook-deliveries/{delivery}/answer': 'directorctl hooks answer ${delivery.id} ${decision}',
  'POST /hook-deliveries/{delivery}/replay': 'directorctl hooks replay ${d.id}',
  'POST /identity-providers/{name}/test': 'directorctl provider test-identity ${quoted(name)}',
  'POST /images': 'directorctl image import ${quoted(',
  'DELETE /images/{sha256}': 'directorctl image delete ${',
  'POST /images/{sha256}/convert': 'directorctl image convert ${quoted(of.name)}',
  'POST /images/prune': 'directorctl image prune',
  'POST /notifications/{name}/test': 'directorctl notifications test ${quoted(name)}',
  'POST /password': 'directorctl password',
  'POST /plans/{id}/again': 'directorctl plans again ${plan.id}',
  'POST /plans/{id}/approve': 'directorctl approve ${plan.id}',
  'POST /plans/{id}/cancel': 'directorctl cancel ${plan.id}',
  'POST /plans/{id}/discard': 'directorctl ${v} ${plan.id}',
  'POST /plans/{id}/pause': 'directorctl pause ${plan.id}',
  'POST /plans/{id}/retry': 'directorctl retry ${plan.id} ${which}',
  'POST /plans/{id}/skip': 'directorctl skip ${plan.id} ${which}',
  'POST /plans/{id}/start': 'directorctl start ${plan.id}',
  'POST /plans/{id}/undo': 'directorctl ${v} ${plan.id}',
  'DELETE /providers/{name}/disks/{disk}': 'directorctl disks delete ${quoted(of.provider)}',
  'POST /providers/{name}/test': 'directorctl provider test ${quoted(name)}',
  'POST /providers/{name}/vms/{vm}/adopt': 'directorctl vms adopt ${quoted(of.provider)}',
  'POST /providers/{name}/vms/{vm}/reclaim': 'directorctl vms reclaim ${quoted(of.provider)}',
  'POST /providers/discover': 'directorctl provider discover ${quoted(provider)}',
  'POST /release-fetches': 'directorctl release import ${quoted(mirrored ?',
  'POST /releases': 'directorctl release import ${quoted(mirrored ?',
  'DELETE /releases/{digest}': 'directorctl release delete ${digest}',
  'POST /releases/{name}/verify': 'directorctl release verify ${quoted(',
  'POST /releases/prune': 'directorctl release prune',
  'POST /schedules/{name}/resume': 'directorctl schedules resume ${quoted(of.name)}',
  'POST /schedules/{name}/run': 'directorctl schedules run ${quoted(of.name)}',
  'POST /schedules/{name}/suspend': 'directorctl schedules suspend ${quoted(of.name)}',
  'DELETE /sessions/{id}': 'directorctl users end-session ID',
  'POST /tokens': 'directorctl users create-token ${quoted(',
  'DELETE /tokens/{id}': 'directorctl users revoke-token ${one.id}',
  'POST /users': 'directorctl users create ${quoted(',
  'DELETE /users/{name}': 'directorctl users ${command} ${quoted(of.name)}',
  'POST /users/{name}/disable': 'directorctl users ${command} ${quoted(of.name)}',
  'POST /users/{name}/enable': 'directorctl users ${command} ${quoted(of.name)}',
  'POST /users/{name}/reset-password': 'directorctl users ${command} ${quoted(of.name)}',
  'POST /users/{name}/role': 'directorctl users role ${quoted(of.name)}',
  'DELETE /users/{name}/sessions/{id}': 'directorctl users end-session ID --user ${quoted(user)}',
  'POST /users/{name}/tokens': 'directorctl users create-token ${quoted(',
  'DELETE /users/{name}/tokens/{id}': 'directorctl users revoke-token ID --user ${quoted(user)}',
}

// Requests without a command, and why.
const apart: Record<string, string> = {
  'POST /campaign-previews': 'it changes nothing, and the command that makes the campaign is below',
  'POST /logins/find': 'it is the other half of directorctl login',
  'POST /logins/{id}/allow': 'it is the other half of directorctl login',
  'POST /logins/{id}/refuse': 'it is the other half of directorctl login',
  'POST /logout': "it ends this browser's session, which directorctl does not have",
  'POST /preview': 'it changes nothing, and the command that stores the text is below',
  'POST /release-fetches/cancel': 'Stop ends an import that this page has begun',
  'POST /session': 'it is the log-in of this browser',
  'POST /uploads': 'it is a part of an import',
  'PATCH /uploads/{id}': 'it is a part of an import',
  'DELETE /uploads/{id}': 'it is a part of an import',
}

test('each request that changes something has a command next to it, or a reason for having none', () => {
  const asked = new Set<string>()
  for (const [, method, path] of code.matchAll(/client\.(POST|PUT|DELETE|PATCH)\(\s*'([^']+)'/g)) {
    asked.add(`${method} ${path}`)
  }
  expect([...asked].toSorted()).toEqual([...Object.keys(acts), ...Object.keys(apart)].toSorted())
  expect(Object.entries(acts).filter(([, command]) => !code.includes(command))).toEqual([])
})

test('the commands are those of directorctl', () => {
  const said = readdirSync(join(root, '../../../cmd/directorctl'), { encoding: 'utf8' })
    .filter((f) => f.endsWith('.go'))
    .map((f) => readFileSync(join(root, '../../../cmd/directorctl', f), 'utf8'))
    .join('\n')
  // The words of a command before its first argument. What a variable has is tested where it is made.
  const literal = dialogs.flatMap((d) => d.commands).filter((c) => c.startsWith('{`'))
  expect(literal.length).toBeGreaterThan(30)
  for (const command of literal) expect(command).toMatch(/^\{`directorctl /)
  const unheard = [...literal, ...Object.values(acts)].filter((command) => {
    const words = /directorctl ((?:[a-z][a-z-]* )*)/.exec(`${command} `)?.[1]?.trim().split(' ') ?? []
    return !words.every((word) => new RegExp(`"${word}[" ]`).test(said))
  })
  expect(unheard).toEqual([])
})
