// An image of a node that the director takes.
import { execFileSync } from 'node:child_process'
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

// nodeImage makes, in the directory, a disk of 1 GiB with a boot sector and a root partition that says which Kubernetes
// it carries.
export function nodeImage(dir: string): string {
  const at = (name: string) => join(dir, name)
  const boot = '21686148-6449-6E6F-744E-656564454649'
  const root = '4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709'
  mkdirSync(at('root/etc'), { recursive: true })
  writeFileSync(
    at('root/etc/kaas-release'),
    JSON.stringify({
      image: 'debian12',
      kubernetes: 'v1.37.1',
      containerd: 'v2.1.4',
      arch: 'amd64',
      built_from: '0123456789ab',
    }),
  )
  writeFileSync(at('disk'), '')
  truncateSync(at('disk'), 2 ** 30)
  execFileSync('sfdisk', ['-q', at('disk')], {
    input: `label: gpt\nstart=2048, size=2048, type=${boot}\nstart=4096, size=131072, type=${root}\n`,
  })
  execFileSync('mke2fs', ['-q', '-t', 'ext4', '-O', 'metadata_csum,64bit', '-d', at('root'), at('part'), '65536k'])
  execFileSync('dd', [`if=${at('part')}`, `of=${at('disk')}`, 'bs=1M', 'seek=2', 'conv=notrunc,sparse', 'status=none'])
  execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', at('disk'), at('node.qcow2')])
  return at('node.qcow2')
}
