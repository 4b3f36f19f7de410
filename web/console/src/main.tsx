import '@patternfly/react-core/dist/styles/base.css'
import './style.css'
import { createRoot } from 'react-dom/client'
import { App } from './app/app'
import { applyTheme } from './app/theme'

applyTheme()
const root = document.getElementById('root')
if (root) createRoot(root).render(<App />)
