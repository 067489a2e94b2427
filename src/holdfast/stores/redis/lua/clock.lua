-- The store's clock.

return string.format('%.17g', now)
