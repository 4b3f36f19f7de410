import { Button, Content, List, ListItem } from '@patternfly/react-core'
import { useState } from 'react'
import { Ask } from '../ui/ask'
import { Command } from '../ui/command'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'

interface Left {
  name: string
  size?: number
  kept?: string // why it stays
}

interface PruneProps {
  what: string
  text: string
  command: string
  look: (dry: boolean) => Promise<Left[]>
  done: () => Promise<unknown>
}

// Prune deletes what nothing needs, after it has shown what that is.
export function Prune({ what, text, command, look, done }: PruneProps) {
  const [busy, setBusy] = useState(false)
  const [found, setFound] = useState<Left[]>()
  const [failed, setFailed] = useState<unknown>()
  const goes = (found ?? []).filter((l) => !l.kept)
  const open = () => {
    setBusy(true)
    setFailed(undefined)
    look(true)
      .then(setFound, setFailed)
      .finally(() => setBusy(false))
  }
  return (
    <>
      <Button variant="secondary" isLoading={busy} isDisabled={busy} onClick={open}>
        Delete what nothing needs
      </Button>
      {failed !== undefined && <ProblemAlert of={failed} />}
      {found && (
        <Ask
          title={goes.length === 0 ? 'Nothing to delete' : `Delete ${goes.length} ${what}?`}
          verb="Delete"
          danger
          ready={goes.length > 0}
          close={() => setFound(undefined)}
          act={async () => {
            await look(false)
            await done()
          }}
        >
          <Content component="p">{text}</Content>
          <List>
            {found.map((l) => (
              <ListItem key={l.name}>
                <span className="break">{l.name}</span>
                {l.size ? `, ${size(l.size)}` : ''}
                {l.kept && <span className="hint"> stays: {l.kept}</span>}
              </ListItem>
            ))}
          </List>
          <Command>{command}</Command>
        </Ask>
      )}
    </>
  )
}
