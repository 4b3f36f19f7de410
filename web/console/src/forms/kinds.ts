export type Kind =
  | 'Provider'
  | 'Image'
  | 'Release'
  | 'Network'
  | 'Project'
  | 'Cluster'
  | 'Schedule'
  | 'IdentityProvider'
  | 'Grant'
  | 'BackupTarget'
  | 'Hook'
  | 'Consul'
  | 'Notification'
  | 'CertificateAuthority'
  | 'Director'

export const kinds: Kind[] = [
  'Cluster',
  'Provider',
  'Network',
  'Image',
  'Release',
  'Project',
  'Schedule',
  'Grant',
  'IdentityProvider',
  'BackupTarget',
  'Hook',
  'Consul',
  'Notification',
  'CertificateAuthority',
  'Director',
]
