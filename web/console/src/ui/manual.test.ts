import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { expect, test } from 'vitest'
import type { Me } from '../app/me'
import { placesOf } from '../app/places'

// The pages of the manual about the console: what they have in bold is what people see in the console.
const docs = join(import.meta.dirname, '../../../../docs/use')
const pages = readdirSync(docs)
  .filter((f) => /^console.*\.md$/.test(f))
  .map((f) => readFileSync(join(docs, f), 'utf8').replaceAll(/^```.*?^```$/gms, ''))

// plain is a text on one line, without the full stop of a sentence.
const plain = (text: string) => text.replaceAll(/\s+/g, ' ').trim().replace(/\.$/, '')

const bold = new Set(
  pages.flatMap((p) =>
    [...p.replaceAll(/`[^`]*`/g, '').matchAll(/\*\*([^*]+)\*\*/g)].map(([, word]) => plain(word ?? '')),
  ),
)

const root = join(import.meta.dirname, '..')
const sources = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((f) => /\.tsx?$/.test(f) && !f.includes('.test.') && !f.endsWith('.d.ts'))
  .map((f) => ts.createSourceFile(f, readFileSync(join(root, f), 'utf8'), ts.ScriptTarget.Latest, true))

// textOf is the text that a node of the code writes on the page, with … for each part that is computed; undefined if it
// writes none.
function textOf(node: ts.Node): string | undefined {
  if (ts.isStringLiteralLike(node)) return node.text
  if (ts.isTemplateExpression(node))
    return node.head.text + node.templateSpans.map((s) => `…${s.literal.text}`).join('')
  if (!ts.isJsxElement(node) && !ts.isJsxFragment(node)) return undefined
  return node.children
    .map((child) => {
      if (ts.isJsxText(child)) return child.text
      if (ts.isJsxExpression(child)) return child.expression ? (textOf(child.expression) ?? '…') : ''
      return '…'
    })
    .join('')
}

const shown = new Set<string>() // all texts of the console
const parts: string[] = [] // the titles of the parts of pages
for (const source of sources) {
  const visit = (node: ts.Node) => {
    if (ts.isImportDeclaration(node) || ts.isTypeNode(node)) return
    const text = textOf(node)
    if (text !== undefined) shown.add(plain(text))
    if (ts.isVariableDeclaration(node) && node.name.getText() === 'tabs' && node.initializer) {
      parts.push(...[...node.initializer.getText().matchAll(/\['[^']*', '([^']*)'\]/g)].map(([, title]) => title ?? ''))
    }
    ts.forEachChild(node, visit)
  }
  visit(source)
}

test('what the manual has in bold is what the console shows', () => {
  expect(bold.size).toBeGreaterThan(150)
  expect([...bold].filter((word) => !shown.has(word))).toEqual([])
})

test('the manual has a section for each page of the navigation, and names each part of a page', () => {
  const places = placesOf({ role: 'admin', scope: 'all', can: [] } as unknown as Me).map((p) => p.text)
  const rows = pages.flatMap((p) => [...p.matchAll(/^\| \[([^\]]+)\]\([^)#]*#([^)]+)\) \|/gm)])
  expect(rows.map(([, name]) => name)).toEqual(places)
  expect(rows.map(([, , anchor]) => anchor)).toEqual(places.map((name) => name.toLowerCase()))
  expect(parts.length).toBeGreaterThan(20)
  expect(parts.filter((title) => !bold.has(title))).toEqual([])
})
