// The pages that the navigation and the palette lead to.
import { sees, type Me } from './me'

export interface Place {
  to: string
  text: string
  for?: Parameters<typeof sees>[1]
}

const places: Place[] = [
  { to: '/', text: 'Inbox' },
  { to: '/clusters', text: 'Clusters' },
  { to: '/nodes', text: 'Nodes' },
  { to: '/plans', text: 'Plans' },
  { to: '/campaigns', text: 'Campaigns' },
  { to: '/infrastructure', text: 'Infrastructure', for: 'infrastructure' },
  { to: '/documents', text: 'Documents', for: 'documents' },
  { to: '/backups', text: 'Backups', for: 'infrastructure' },
  { to: '/certificates', text: 'Certificates', for: 'infrastructure' },
  { to: '/consul', text: 'Consul', for: 'infrastructure' },
  { to: '/hooks', text: 'Hooks', for: 'infrastructure' },
  { to: '/notifications', text: 'Notifications', for: 'infrastructure' },
  { to: '/schedules', text: 'Schedules', for: 'schedules' },
  { to: '/activity', text: 'Activity', for: 'activity' },
  { to: '/users', text: 'Users', for: 'users' },
  { to: '/settings', text: 'Settings' },
]

export function placesOf(me: Me): Place[] {
  return places.filter((p) => !p.for || sees(me, p.for))
}
