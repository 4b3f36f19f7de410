import {
  Button,
  FormSelect,
  FormSelectOption,
  SearchInput,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from '@patternfly/react-core'
import { memo, useCallback, useEffect, useRef, useState, type ReactNode } from 'react'
import type { useFilters } from './url'

type Filters = ReturnType<typeof useFilters>

export function FilterBar({ children }: { children: ReactNode }) {
  return (
    <Toolbar>
      <ToolbarContent>{children}</ToolbarContent>
    </Toolbar>
  )
}

const pause = 500 // ms after which a key is a first one
const wait = 200 // ms that further keys wait for the next one

// TextFilter asks the director at the first key, and then a moment after the last one.
export function TextFilter({ filters, name, label }: { filters: Filters; name: string; label: string }) {
  const wanted = filters.get(name)
  const [text, setText] = useState(wanted)
  useEffect(() => setText(wanted), [wanted])
  const changed = useRef(0)
  const latest = useRef(filters)
  useEffect(() => {
    latest.current = filters
    if (text === wanted) return
    const timer = setTimeout(() => filters.set({ [name]: text }), wait)
    return () => clearTimeout(timer)
  }, [text, wanted, name, filters])
  const type = useCallback(
    (value: string) => {
      const now = Date.now()
      const first = now - changed.current > pause
      changed.current = now
      setText(value)
      // Here, so that the page is drawn once for the key, and not twice.
      if (first) latest.current.set({ [name]: value })
    },
    [name],
  )
  return <Search label={label} text={text} type={type} />
}

interface SearchProps {
  label: string
  text: string
  type: (value: string) => void
}

// Search is drawn again only when its own text changes: a page has several, and each key changes the filters of all.
const Search = memo(function Search({ label, text, type }: SearchProps) {
  return (
    <ToolbarItem>
      <SearchInput
        aria-label={label}
        placeholder={label}
        value={text}
        onChange={(_, v) => type(v)}
        onClear={() => type('')}
      />
    </ToolbarItem>
  )
})

interface ChoiceProps {
  filters: Filters
  name: string
  label: string
  options: [value: string, text: string][]
  all?: string // what holds without a choice
}

export function ChoiceFilter({ filters, name, label, options, all = 'all' }: ChoiceProps) {
  return (
    <ToolbarItem>
      <FormSelect aria-label={label} value={filters.get(name)} onChange={(_, v) => filters.set({ [name]: v })}>
        <FormSelectOption value="" label={`${label}: ${all}`} />
        {options.map(([value, text]) => (
          <FormSelectOption key={value} value={value} label={`${label}: ${text}`} />
        ))}
      </FormSelect>
    </ToolbarItem>
  )
}

// Pages goes through a list that the director gives out in parts.
export function Pages({ filters, next }: { filters: Filters; next: string | undefined }) {
  const first = filters.get('continue') === ''
  if (first && !next) return null
  return (
    <Toolbar>
      <ToolbarContent>
        <ToolbarItem>
          <Button variant="secondary" isDisabled={first} onClick={() => filters.set({ continue: null })}>
            First page
          </Button>
        </ToolbarItem>
        <ToolbarItem>
          <Button variant="secondary" isDisabled={!next} onClick={() => filters.set({ continue: next ?? null })}>
            Next page
          </Button>
        </ToolbarItem>
      </ToolbarContent>
    </Toolbar>
  )
}
