// The default theme with the fonts that a system has: none is fetched.
import './style.css'
export { default } from 'vitepress/theme-without-fonts'
