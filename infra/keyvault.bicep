// Secrets that are not ours to abolish: what a webhook's sender signs with. An app setting reads one as
// @Microsoft.KeyVault(SecretUri=https://NAME.vault.azure.net/secrets/SECRET), by the app's identity.
param name string
param location string
param tags object

resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {
  // checkov:skip=CKV_AZURE_109: there is no virtual network here; an identity with a role is the only way in
  // checkov:skip=CKV_AZURE_189: there is no virtual network here; an identity with a role is the only way in
  // checkov:skip=CKV_AZURE_110: purge protection would keep `azd down --purge` from freeing the name; a webhook secret can be issued again
  // checkov:skip=CKV_AZURE_42: soft delete is on; purge protection is not, see CKV_AZURE_110
  name: name
  location: location
  tags: tags
  properties: {
    tenantId: tenant().tenantId
    sku: { family: 'A', name: 'standard' }
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 7
  }
}

output name string = vault.name
