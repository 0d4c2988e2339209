"""What would be deployed, without deploying it: the Bicep as data, the package, and the app in it."""
