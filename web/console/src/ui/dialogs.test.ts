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

const dialogs = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((f) => f.endsWith('.tsx'))
  .flatMap((f) => dialogsOf(join(root, f)))

test('each dialog has the command that does the same, or a reason for having none', () => {
  expect(dialogs.length).toBeGreaterThan(40)
  expect(dialogs.filter((d) => d.commands.length === 0).map((d) => d.title)).toEqual(Object.keys(without))
})

test('the commands of dialogs are those of directorctl', () => {
  const said = readdirSync(join(root, '../../../cmd/directorctl'), { encoding: 'utf8' })
    .filter((f) => f.endsWith('.go'))
    .map((f) => readFileSync(join(root, '../../../cmd/directorctl', f), 'utf8'))
    .join('\n')
  // The words of a command before its first argument. What a variable has is tested where it is made.
  const literal = dialogs.flatMap((d) => d.commands).filter((c) => c.startsWith('{`'))
  expect(literal.length).toBeGreaterThan(30)
  for (const command of literal) {
    expect(command).toMatch(/^\{`directorctl /)
    const words = /^\{`directorctl ((?:[a-z-]+ )*)/.exec(command)?.[1]?.trim().split(' ') ?? []
    for (const word of words) expect(said, command).toMatch(new RegExp(`"${word}[" ]`))
  }
})
