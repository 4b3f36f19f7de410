import { indentWithTab } from '@codemirror/commands'
import { yaml } from '@codemirror/lang-yaml'
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import { lintGutter, setDiagnostics, type Diagnostic } from '@codemirror/lint'
import { EditorState } from '@codemirror/state'
import { EditorView, keymap } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { basicSetup } from 'codemirror'
import { useEffect, useId, useRef } from 'react'
import { nonce } from '../ui/nonce'
import type { Mark } from './places'

interface EditorProps {
  text: string
  onChange: (text: string) => void
  marks: Mark[]
  label: string
  line?: number // where the text is scrolled to when this changes
}

// The colours are those of the page, so that the editor changes with its theme. style.css has them.
const look = EditorView.theme({
  '&': { color: 'var(--editor-text)', backgroundColor: 'var(--editor-back)' },
  '.cm-content': { caretColor: 'var(--editor-text)' },
  '.cm-cursor': { borderLeftColor: 'var(--editor-text)' },
  '.cm-gutters': { color: 'var(--editor-quiet)', backgroundColor: 'var(--editor-back)' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--editor-line)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'var(--editor-chosen) !important',
  },
  '.cm-tooltip': { color: 'var(--editor-text)', backgroundColor: 'var(--editor-back)' },
})
const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName), tags.keyword], color: 'var(--editor-key)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--editor-string)' },
  { tag: tags.comment, color: 'var(--editor-quiet)', fontStyle: 'italic' },
  { tag: tags.meta, color: 'var(--editor-quiet)' },
])

// Editor edits YAML. The text is the only state: what comes from outside replaces it where it differs. The Tab key
// indents; Escape and then Tab leaves the editor.
export default function Editor({ text, onChange, marks, label, line }: EditorProps) {
  const box = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView>(null)
  const hint = useId()
  const change = useRef(onChange)
  change.current = onChange
  useEffect(() => {
    if (!box.current) return
    const v = new EditorView({
      parent: box.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          basicSetup,
          yaml(),
          lintGutter(),
          keymap.of([indentWithTab]),
          EditorView.cspNonce.of(nonce()),
          EditorView.contentAttributes.of({
            'aria-label': label,
            'aria-describedby': hint,
            tabindex: '0', // also what scrolls can be reached
          }),
          look,
          syntaxHighlighting(colours),
          EditorView.updateListener.of((u) => {
            if (u.docChanged) change.current(u.state.doc.toString())
          }),
        ],
      }),
    })
    view.current = v
    return () => v.destroy()
    // What the text is later comes with the next effect.
  }, [label, hint])
  useEffect(() => {
    const v = view.current
    if (v && v.state.doc.toString() !== text) {
      v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: text } })
    }
  }, [text])
  useEffect(() => {
    const v = view.current
    if (!v || !line || line > v.state.doc.lines) return
    // The editor scrolls, and never the page around it.
    const to = v.lineBlockAt(v.state.doc.line(line).from).top
    v.requestMeasure({ read: () => to, write: (top) => v.scrollDOM.scrollTo({ top }) })
  }, [line])
  useEffect(() => {
    const v = view.current
    if (!v) return
    const found = marks
      .filter((m) => m.line > 0 && m.line <= v.state.doc.lines)
      .map((m): Diagnostic => {
        const line = v.state.doc.line(m.line)
        return {
          from: line.from,
          to: line.to,
          severity: 'error',
          message: `${m.field}: ${m.message}${m.hint ? ` – ${m.hint}` : ''}`,
        }
      })
    v.dispatch(setDiagnostics(v.state, found))
  }, [marks, text])
  return (
    <>
      <div ref={box} className="editor" />
      <p id={hint} className="hint">
        Escape and then Tab leaves the editor.
      </p>
    </>
  )
}
