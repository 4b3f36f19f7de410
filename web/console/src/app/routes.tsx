import type { LoaderFunctionArgs, RouteObject } from 'react-router'
import { effectsQuery, planQuery } from '../plan/asked'
import { Root } from './root'
import { Broken, NotFound } from './broken'
import { queries } from './queries'

// page loads a page when it is first opened.
function page(load: () => Promise<{ default: React.ComponentType }>): Pick<RouteObject, 'lazy'> {
  return { lazy: async () => ({ Component: (await load()).default }) }
}

// askPlan asks for what a plan's page shows, while the page itself is still being read.
function askPlan({ params: { id = '', tab = 'summary' } }: LoaderFunctionArgs): null {
  void queries.prefetchQuery(planQuery(id))
  if (tab === 'summary') void queries.prefetchQuery(effectsQuery(id))
  return null
}

export const routes: RouteObject[] = [
  {
    path: '/',
    Component: Root,
    ErrorBoundary: Broken,
    HydrateFallback: () => null,
    children: [
      {
        ErrorBoundary: Broken,
        children: [
          { index: true, ...page(() => import('../pages/inbox')) },
          { path: 'clusters', ...page(() => import('../pages/clusters')) },
          { path: 'clusters/new', ...page(() => import('../pages/newCluster')) },
          { path: 'clusters/:name/:tab?', ...page(() => import('../pages/cluster')) },
          { path: 'clusters/:name/maintenance', ...page(() => import('../pages/maintenance')) },
          { path: 'clusters/:name/nodes/:node', ...page(() => import('../pages/node')) },
          { path: 'clusters/:name/nodes/:node/console', ...page(() => import('../pages/nodeConsole')) },
          { path: 'clusters/:name/nodes/:node/shell', ...page(() => import('../pages/nodeShell')) },
          { path: 'nodes', ...page(() => import('../pages/allNodes')) },
          { path: 'plans', ...page(() => import('../pages/plans')) },
          { path: 'plans/:id/:tab?', loader: askPlan, ...page(() => import('../pages/plan')) },
          { path: 'plans/:id/steps/:step', ...page(() => import('../pages/step')) },
          { path: 'campaigns', ...page(() => import('../pages/campaigns')) },
          { path: 'campaigns/new', ...page(() => import('../pages/newCampaign')) },
          { path: 'campaigns/:id', ...page(() => import('../pages/campaign')) },
          { path: 'documents/:kind?', ...page(() => import('../pages/documents')) },
          { path: 'documents/:kind/:name', ...page(() => import('../pages/document')) },
          { path: 'apply', ...page(() => import('../pages/apply')) },
          { path: 'infrastructure/:tab?', ...page(() => import('../pages/infrastructure')) },
          { path: 'images/import', ...page(() => import('../pages/imageImport')) },
          { path: 'releases/import', ...page(() => import('../pages/releaseImport')) },
          { path: 'backups', ...page(() => import('../pages/backups')) },
          { path: 'hooks', ...page(() => import('../pages/hooks')) },
          { path: 'notifications', ...page(() => import('../pages/notifications')) },
          { path: 'consul', ...page(() => import('../pages/consul')) },
          { path: 'certificates', ...page(() => import('../pages/certificates')) },
          { path: 'schedules', ...page(() => import('../pages/schedules')) },
          { path: 'activity', ...page(() => import('../pages/activity')) },
          { path: 'users', ...page(() => import('../pages/users')) },
          { path: 'approve', ...page(() => import('../pages/approve')) },
          { path: 'users/:tab?', ...page(() => import('../pages/users')) },
          { path: 'settings', ...page(() => import('../pages/settings')) },
          { path: '*', Component: NotFound },
        ],
      },
    ],
  },
]
