/**
 * The feature gates that Kubernetes v1.36 knows. Every component takes the whole list, so a node whose operator passes
 * one set of gates to all components must find them all known here; only the few in reference start.md §2.8 change
 * what a service proxy does. Names, stages and defaults are those of the v1.36 documentation.
 */

/** The maturity of a gate; `GA` gates may be locked to their default. */
export type GateStage = "Alpha" | "Beta" | "GA" | "Deprecated";

/** A group of gates that share stage, default and lock. */
export interface GateGroup {
  readonly stage: GateStage;
  readonly default: boolean;
  readonly locked: boolean;
  /** Names separated by white space. */
  readonly names: string;
}

export const KNOWN_GATES: readonly GateGroup[] = [
  {
    stage: "Alpha",
    default: false,
    locked: false,
    names: `
      AllAlpha APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
      CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
      CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ContainerStopSignals
      ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRAListTypeAttributes
      DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims EventedPLEG GangScheduling
      GenericWorkload HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
      InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace LoggingAlphaOptions
      ManifestBasedAdmissionControlConfig MemoryQoS MutablePVNodeAffinity NativeHistograms
      PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers
      PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi
      ShardedListAndWatch StorageCapacityScoring StorageVersionAPI TaintTolerationComparisonOperators
      TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport
      VolumeLimitScaling WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob`,
  },
  {
    stage: "Beta",
    default: true,
    locked: false,
    names: `
      APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO
      AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
      ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz
      ComponentStatusz ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging
      DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
      DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout
      DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency EnvFiles
      ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance
      HostnameOverride InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling
      InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
      KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot LoggingBetaOptions
      MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
      MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures
      NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist PodDeletionCost
      PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission PortForwardWebsockets
      PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile
      ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
      RestartAllContainersOnContainerExits RotateKubeletServerCertificate SchedulerAsyncPreemption
      SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate
      StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
      StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionHash
      StrictIPCIDRValidation StructuredAuthenticationConfigurationEgressSelector
      StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
      TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
      UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook WatchList
      WatchListClient WindowsGracefulNodeShutdown`,
  },
  {
    stage: "Beta",
    default: false,
    locked: false,
    names: `
      AllBeta ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode CoordinatedLeaderElection
      DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet
      PodCertificateRequest SELinuxMount SchedulerAsyncAPICalls StorageVersionMigrator`,
  },
  {
    stage: "GA",
    default: true,
    locked: false,
    names: "AllowServiceExternalIPs DisableAllocatorDualWrite ExecProbeTimeout",
  },
  {
    stage: "GA",
    default: true,
    locked: true,
    names: `
      APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
      AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting
      CSIServiceAccountTokenSecrets ConsistentListFromCache CronJobsScheduledAnnotation CustomResourceFieldSelectors
      DRAAdminAccess DRAPrioritizedList DeclarativeValidation DynamicResourceAllocation ElasticIndexedJob
      ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume InOrderInformers InPlacePodVerticalScaling
      InformerResourceVersion JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy
      KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources
      KubeletPodResourcesGet KubeletTracing LogarithmicScaleDown MatchLabelKeysInPodAffinity MemoryManager
      MultiCIDRServiceAllocator MutableCSINodeAllocatableCount MutatingAdmissionPolicy NFTablesProxyMode
      NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OrderedNamespaceDeletion PodIndexLabel
      PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
      PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
      RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization
      RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod SchedulerQueueingHints
      SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
      ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo ServiceTrafficDistribution
      SidecarContainers StatefulSetAutoDeletePVC StatefulSetStartOrdinal StreamingCollectionEncodingToJSON
      StreamingCollectionEncodingToProtobuf StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks
      StructuredAuthenticationConfiguration StructuredAuthorizationConfiguration TopologyAwareHints
      TopologyManagerPolicyOptions UserNamespacesSupport VolumeAttributesClass WinDSR WinOverlay`,
  },
  {
    stage: "Deprecated",
    default: false,
    locked: false,
    names: `
      AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests ChangeContainerStatusOnKubeletRestart
      DeclarativeValidationTakeover GitRepoVolumeDriver InPlacePodVerticalScalingAllocatedStatus KMSv1
      SeparateCacheWatchRPC WatchFromStorageWithoutResourceVersion WindowsHostNetwork`,
  },
  { stage: "Deprecated", default: true, locked: false, names: "DisableNodeKubeProxyVersion StorageNamespaceIndex" },
];
