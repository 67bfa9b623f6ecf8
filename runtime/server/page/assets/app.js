// The page is built from web/.
