import { createContext, useContext } from 'react'
import type { Schemas } from '../api/client'

export type Me = Schemas['Me']

export const MeContext = createContext<Me | undefined>(undefined)

export function useMe(): Me {
  const me = useContext(MeContext)
  if (!me) throw new Error('no one is logged in')
  return me
}

// What a role may see at all. The director decides about each request; this only leaves out what it would refuse.
// docs/reference/permissions.md has the rules.
export function sees(me: Me, what: 'users' | 'activity' | 'infrastructure' | 'schedules' | 'documents'): boolean {
  switch (what) {
    case 'users':
    case 'activity':
      return me.role === 'admin' || me.role === 'auditor'
    default:
      return me.role !== 'none'
  }
}

// acts reports whether the user may change anything at all: with the role, or with a grant.
export function acts(me: Me, cluster?: { name: string; project?: string }): boolean {
  if (me.scope !== 'all') return false
  if (me.role === 'admin' || me.role === 'operator') return true
  return (me.grants ?? []).some(
    (g) => (g.role === 'admin' || g.role === 'operator') && (!cluster || covers(g, cluster)),
  )
}

function covers(grant: Schemas['Granted'], cluster: { name: string; project?: string }): boolean {
  return grant.cluster === cluster.name || (grant.project !== undefined && grant.project === cluster.project)
}

// administers reports whether the user is an administrator of the cluster.
export function administers(me: Me, cluster: { name: string; project?: string }): boolean {
  if (me.scope !== 'all') return false
  return me.role === 'admin' || (me.grants ?? []).some((g) => g.role === 'admin' && covers(g, cluster))
}

// edits reports whether the user may change documents: operators run plans, and change none.
export function edits(me: Me): boolean {
  return me.scope === 'all' && (me.role === 'admin' || (me.grants ?? []).some((g) => g.role === 'admin'))
}
