import {
  Button,
  FormSelect,
  FormSelectOption,
  SearchInput,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from '@patternfly/react-core'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import type { useFilters } from './url'

type Filters = ReturnType<typeof useFilters>

export function FilterBar({ children }: { children: ReactNode }) {
  return (
    <Toolbar>
      <ToolbarContent>{children}</ToolbarContent>
    </Toolbar>
  )
}

// TextFilter asks the director at the first key, and then a moment after the last one.
export function TextFilter({ filters, name, label }: { filters: Filters; name: string; label: string }) {
  const wanted = filters.get(name)
  const [text, setText] = useState(wanted)
  useEffect(() => setText(wanted), [wanted])
  const changed = useRef(0)
  useEffect(() => {
    if (text === wanted) return
    const now = Date.now()
    const wait = now - changed.current > 500 ? 0 : 200
    changed.current = now
    const timer = setTimeout(() => filters.set({ [name]: text }), wait)
    return () => clearTimeout(timer)
  }, [text, wanted, name, filters])
  return (
    <ToolbarItem>
      <SearchInput
        aria-label={label}
        placeholder={label}
        value={text}
        onChange={(_, v) => setText(v)}
        onClear={() => setText('')}
      />
    </ToolbarItem>
  )
}

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
