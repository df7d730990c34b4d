// Sets the theme before the first paint, so that pages do not flash.
const theme = localStorage.getItem("ortoo-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
