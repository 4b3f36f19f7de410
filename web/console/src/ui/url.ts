import { useMemo } from 'react'
import { useSearchParams } from 'react-router'

// useFilters keeps filters in the URL, so that they can be linked. A change of one goes to the first page.
// Changes are shown at once: a check box or a text field that shows what the URL says would otherwise fall back to what
// it showed before, and lose what is typed meanwhile.
export function useFilters(): {
  get: (name: string) => string
  set: (changes: Record<string, string | null>) => void
} {
  const [params, setParams] = useSearchParams()
  return useMemo(
    () => ({
      get: (name) => params.get(name) ?? '',
      set: (changes) => {
        setParams(
          (old) => {
            const next = new URLSearchParams(old)
            if (!('continue' in changes)) next.delete('continue')
            for (const [k, v] of Object.entries(changes)) {
              if (v === null || v === '') next.delete(k)
              else next.set(k, v)
            }
            return next
          },
          { replace: !('continue' in changes), flushSync: true },
        )
      },
    }),
    [params, setParams],
  )
}

// words splits a filter that names several.
export function words(text: string): string[] | undefined {
  return text === '' ? undefined : text.split(',')
}
