import { Content } from '@patternfly/react-core'
import { useQueryClient } from '@tanstack/react-query'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { Ask, AskButton } from '../ui/ask'
import { Command, quoted } from '../ui/command'

// DeleteDisk destroys a disk that outlived its VM, or takes one off the list that is not the director's.
export function DeleteDisk({ of }: { of: Schemas['Disk'] }) {
  const queries = useQueryClient()
  const foreign = of.state === 'foreign' || of.state === 'missing'
  return (
    <AskButton
      variant="secondary"
      size="sm"
      isDanger
      aria-label={`Delete ${of.name}`}
      ask={(close) => (
        <Ask
          title={foreign ? `Take ${of.name} off the list?` : `Delete disk ${of.name}?`}
          verb={foreign ? 'Take it off' : 'Delete the disk'}
          danger
          close={close}
          act={async () => {
            await must(
              client.DELETE('/providers/{name}/disks/{disk}', { params: { path: { name: of.provider, disk: of.id } } }),
            )
            await queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/disks' })
          }}
        >
          <Content component="p">
            {foreign
              ? 'The director does not destroy it: someone else attached it, or the hypervisor does not have it.'
              : 'The disk is destroyed with everything on it. That cannot be undone.'}
          </Content>
          <Command>{`directorctl disks delete ${quoted(of.provider)} ${quoted(of.id)}`}</Command>
        </Ask>
      )}
    >
      Delete
    </AskButton>
  )
}
