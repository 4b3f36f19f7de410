import { useSyncExternalStore } from 'react'

export type Theme = 'system' | 'light' | 'dark'
const key = 'director.theme'
const watchers = new Set<() => void>()
const dark = matchMedia('(prefers-color-scheme: dark)')
let theme: Theme = stored()

// A browser may refuse to store anything: the choice then holds until the page is loaded again.
function stored(): Theme {
  try {
    const t = localStorage.getItem(key)
    return t === 'light' || t === 'dark' ? t : 'system'
  } catch {
    return 'system'
  }
}

export function applyTheme(): void {
  const on = theme === 'dark' || (theme === 'system' && dark.matches)
  document.documentElement.classList.toggle('pf-v6-theme-dark', on)
}
dark.addEventListener('change', applyTheme)

export function setTheme(t: Theme): void {
  theme = t
  try {
    localStorage.setItem(key, t)
  } catch {
    // see stored
  }
  applyTheme()
  for (const w of watchers) w()
}

export function useTheme(): Theme {
  return useSyncExternalStore(
    (changed) => {
      watchers.add(changed)
      return () => watchers.delete(changed)
    },
    () => theme,
  )
}
