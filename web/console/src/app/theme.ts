import { useSyncExternalStore } from 'react'
import { remember, remembered } from './remembered'

export type Theme = 'system' | 'light' | 'dark'
const key = 'director.theme'
const watchers = new Set<() => void>()
const dark = matchMedia('(prefers-color-scheme: dark)')
let theme: Theme = stored()

function stored(): Theme {
  const t = remembered(key)
  return t === 'light' || t === 'dark' ? t : 'system'
}

export function applyTheme(): void {
  const on = theme === 'dark' || (theme === 'system' && dark.matches)
  document.documentElement.classList.toggle('pf-v6-theme-dark', on)
}
dark.addEventListener('change', applyTheme)

export function setTheme(t: Theme): void {
  theme = t
  remember(key, t)
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
