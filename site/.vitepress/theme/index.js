// The default theme with the fonts that a system has: none is fetched.
export { default } from 'vitepress/theme-without-fonts'
import './style.css' // after the theme's
