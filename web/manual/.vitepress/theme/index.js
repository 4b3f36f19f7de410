// The default theme without its web fonts: the reader's own are as good, and the director stays small.
import DefaultTheme from 'vitepress/theme-without-fonts'
import './style.css'

export default DefaultTheme
