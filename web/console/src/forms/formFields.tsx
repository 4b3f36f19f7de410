import {
  Button,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  TextInput,
} from '@patternfly/react-core'
import { Fragment, useState, type ReactNode } from 'react'
import { flushSync } from 'react-dom'
import type { Field } from './fields'
import { choices, foundWords, has, type Found } from './found'
import type { Kind } from './kinds'
import type { Mark } from './places'
import { get, partOf, set, type Value } from './tree'

interface FormFieldsProps {
  kind: Kind
  fields: Field[]
  text: string
  names: (kind: Kind) => string[] // of documents that a field may name
  marks: Mark[]
  edit: (text: string) => void
  found?: Found[] // what the provider has
  children?: ReactNode // what finds it: it comes before the first field that takes it
}

// FormFields edit the text. They keep nothing themselves: what they show is what the text says.
export function FormFields({ kind, fields, text, names, marks, edit, found, children }: FormFieldsProps) {
  const name = partOf(text, kind)?.name ?? ''
  const own = fields.filter((f) => !f.when || f.when(text, kind))
  const shown = own.map((f) => {
    const pointer = '/' + f.path.join('/')
    const wrong = marks.filter((m) => m.pointer === pointer && m.document === `${kind}/${name}`)
    return (
      <OneField
        key={pointer}
        id={`${kind}${pointer}`}
        of={f.of ? { ...f, type: 'choice', options: names(f.of).map((n) => [n, n]) } : f}
        found={f.found && found && choices(found, f.found, f.place && String(get(text, kind, f.place) ?? ''))}
        value={get(text, kind, f.path)}
        wrong={wrong}
        // A name that is cleared to be typed again keeps its place.
        change={(v) => edit(set(text, kind, f.path, v ?? (f.path.at(-1) === 'name' ? '' : undefined)))}
      />
    )
  })
  const taking = own.findIndex((f) => f.found)
  return shown.toSpliced(taking < 0 ? shown.length : taking, 0, <Fragment key="finding">{children}</Fragment>)
}

interface OneFieldProps {
  id: string
  of: Field
  value: Value | undefined
  wrong: Mark[]
  found?: [value: string, text: string][]
  change: (value: Value | undefined) => void
}

// another is the choice to type a name. It is no name itself.
const another = ' another'

// typed is what a person has typed, as the document has it: a number where the field is one.
export function typed(of: Pick<Field, 'type' | 'options'>, text: string): Value | undefined {
  if (text === '') return undefined
  const number = of.type === 'number' || (of.options?.length && of.options.every(([v]) => /^\d+$/.test(v)))
  return number && /^\d+$/.test(text) ? Number(text) : text
}

function OneField({ id, of, value, wrong, found, change }: OneFieldProps) {
  const [typing, setTyping] = useState(false)
  const [within, setWithin] = useState(false) // choices that arrive while a person types do not take the field away
  const turn = (toText: boolean) => {
    flushSync(() => setTyping(toText))
    document.getElementById(id)?.focus() // the field that had the focus is gone
  }
  const shown = value === undefined ? '' : String(value)
  const validated = wrong.length > 0 ? 'error' : 'default'
  const known = of.options?.some(([v]) => v === shown)
  const offered = found && found.length > 0 ? found : undefined
  const missing = offered && shown !== '' && !has(offered, shown)
  return (
    <FormGroup label={of.label} fieldId={id}>
      {of.type === 'choice' ? (
        <FormSelect
          id={id}
          value={shown}
          validated={validated}
          aria-describedby={`${id}-help`}
          onChange={(_, v) => change(typed(of, v))}
        >
          {!known && <FormSelectOption value={shown} label={shown || 'Choose'} />}
          {of.options?.map(([v, text]) => (
            <FormSelectOption key={v} value={v} label={text} />
          ))}
        </FormSelect>
      ) : offered && !typing && !within ? (
        <FormSelect
          id={id}
          value={shown}
          validated={validated}
          aria-describedby={`${id}-help`}
          onChange={(_, v) => (v === another ? turn(true) : change(typed(of, v)))}
        >
          {!offered.some(([v]) => v === shown) && shown !== '' && <FormSelectOption value={shown} label={shown} />}
          {(of.empty !== undefined || shown === '') && <FormSelectOption value="" label={of.empty ?? 'Choose'} />}
          {offered.map(([v, text]) => (
            <FormSelectOption key={v} value={v} label={text} />
          ))}
          <FormSelectOption value={another} label="Type another name" />
        </FormSelect>
      ) : (
        <TextInput
          id={id}
          value={shown}
          validated={validated}
          inputMode={of.type === 'number' ? 'numeric' : undefined}
          placeholder={of.empty}
          autoComplete="off"
          spellCheck={false}
          aria-describedby={`${id}-help`}
          onFocus={() => setWithin(!offered)}
          onBlur={() => setWithin(false)}
          onChange={(_, v) => change(typed(of, v))}
        />
      )}
      <FormHelperText id={`${id}-help`}>
        <HelperText isLiveRegion>
          {wrong.map((m, i) => (
            <HelperTextItem key={i} variant="error">
              {m.message}
              {m.hint && ` – ${m.hint}`}
            </HelperTextItem>
          ))}
          {wrong.length === 0 && missing && of.found && (
            <HelperTextItem variant="warning">
              The provider shows no {foundWords[of.found][0]} of this name.
            </HelperTextItem>
          )}
          {typing && (
            <HelperTextItem>
              <Button variant="link" isInline onClick={() => turn(false)}>
                Choose from what was found
              </Button>
            </HelperTextItem>
          )}
          {wrong.length === 0 && of.help && <HelperTextItem>{of.help}</HelperTextItem>}
        </HelperText>
      </FormHelperText>
    </FormGroup>
  )
}
