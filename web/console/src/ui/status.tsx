// Statuses as labels: a colour, a symbol and the word, so that none of them carries the meaning alone.
import type { LabelProps } from '@patternfly/react-core'
import {
  BanIcon,
  CheckCircleIcon,
  ExclamationCircleIcon,
  ExclamationTriangleIcon,
  InProgressIcon,
  PauseCircleIcon,
  PendingIcon,
  UserIcon,
} from '@patternfly/react-icons'
import { memo, type ReactNode } from 'react'

interface Look {
  color: LabelProps['color']
  icon: ReactNode
}

const good: Look = { color: 'green', icon: <CheckCircleIcon /> }
const bad: Look = { color: 'red', icon: <ExclamationCircleIcon /> }
const busy: Look = { color: 'blue', icon: <InProgressIcon /> }
const person: Look = { color: 'orange', icon: <UserIcon /> }
const warning: Look = { color: 'orange', icon: <ExclamationTriangleIcon /> }
const still: Look = { color: 'grey', icon: <PendingIcon /> }
const stopped: Look = { color: 'grey', icon: <BanIcon /> }

const looks: Record<string, Look> = {
  // plans
  planned: person,
  approved: person,
  running: busy,
  paused: { color: 'orange', icon: <PauseCircleIcon /> },
  cancelling: busy,
  cancelled: stopped,
  parked: person,
  failed: bad,
  undoing: busy,
  undone: stopped,
  done: good,
  discarded: stopped,
  // steps
  pending: still,
  waiting: busy,
  skipped: stopped,
  undo_due: busy,
  stuck: bad,
  // clusters
  absent: still,
  creating: busy,
  unfinished: warning,
  ready: good,
  changing: busy,
  deleting: busy,
  // nodes of all clusters
  problem: bad,
  unseen: still,
  // health of clusters
  good,
  degraded: warning,
  broken: bad,
  unknown: still,
  // campaigns and their clusters
  planning: busy,
  resting: still,
  closed: still,
  ended: stopped,
  agreed: still,
  outdated: warning,
  unplanned: still,
  nothing: stopped,
  // nodes and schedules
  'not ready': bad,
  cordoned: warning,
  interrupted: warning,
  missed: warning,
  suspended: stopped,
  // backups and certificates
  late: warning,
  // hooks
  due: busy,
  accepted: person,
  delivered: good,
  answered: good,
  expired: warning,
  withdrawn: stopped,
  // notifications
  sent: good,
  dropped: stopped,
  // entries of Consul
  missing: warning,
  changed: warning,
  surplus: warning,
  // audit
  ok: good,
  refused: warning,
}

// words are statuses as people read them.
const words: Record<string, string> = {
  planned: 'waits to be started',
  approved: 'agreed, waits to be started',
  parked: 'waits for a person',
  undo_due: 'to be undone',
}

// Status looks like PatternFly's Label, which the shell brings the styles of. A Label measures its text and listens to
// every key: lists have hundreds of these.
export const Status = memo(function Status({ of, word }: { of: string; word?: string }) {
  const look = looks[of] ?? still
  return (
    <span className={`pf-v6-c-label pf-m-outline pf-m-compact pf-m-${look.color}`} data-status={of}>
      <span className="pf-v6-c-label__content">
        <span className="pf-v6-c-label__icon">{look.icon}</span>
        <span className="pf-v6-c-label__text">{word ?? words[of] ?? of}</span>
      </span>
    </span>
  )
})
