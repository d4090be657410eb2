/**
 * The feature gates of Kubernetes v1.37, and those of v1.36 that it has dropped. Every component accepts the whole list,
 * since operators pass one set of gates to all components; only the few in reference start.md §2.8 change what a service
 * proxy does. Names, stages and defaults are those of v1.37.
 */

/** The maturity of a gate; `GA` gates may be locked to their default. */
export type GateStage = "Alpha" | "Beta" | "GA" | "Deprecated";

export const KNOWN_GATES: readonly {
  readonly stage: GateStage;
  readonly default: boolean;
  readonly locked: boolean;
  /** Names separated by white space. */
  readonly names: string;
}[] = [
  {
    stage: "Alpha",
    default: false,
    locked: false,
    names: `
      APIServerWebhookAuthenticationToken APIServingWithRoutine AllAlpha AtomicWriteVolumeUserFields
      CBORServingAndStorage CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR
      ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
      CompositePodGroup ConsistentListFromCacheSkipTimeoutFallback ContainerStopSignals
      ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRADerivedAttributes
      DRADeviceCompatibilityGroups DRAListTypeAttributes DRANodeAllocatableResources DRAOptionalNodeOperations
      DRAPartitionableDevicesType DRAResourcePoolStatus DefaultPodSysctls EmptyDirVolumeMode EventedPLEG
      EvictionRequestAPI GRPCContainerProbeTLS GangScheduling H2CContainerProbe ImageVolumeWithDigest
      InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
      InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScalingSchedulerPreemption
      InterPodAffinityHostnameFastPath KubeProxyNFTablesLocalhostNodePorts LoggingAlphaOptions
      MutablePVNodeAffinity NodeLifecycleConditions PodGroupPreemptionPolicy PodLogsQuerySplitStreams
      QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi SchedulerPreQueueingHints
      ShardedListAndWatch StatefulSetRecreateStrategy StorageVersionAPI TaintTolerationComparisonOperators
      TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport
      VolumeBindMountOptions WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob`,
  },
  {
    stage: "Beta",
    default: true,
    locked: false,
    names: `
      APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth
      AllowUnsafeMalformedObjectDeletion AtomicFIFO AuthorizePodWebsocketUpgradeCreatePermission
      CPUManagerPolicyBetaOptions CRDObservedGenerationTracking ClearingNominatedNodeNameAfterBinding
      ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz ConcurrentWatchObjectDecode
      ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging DRAConsumableCapacity
      DRADeviceBindingConditions DRAPartitionableDevices DRAResourceClaimGranularStatusAuthorization
      DRASchedulerFilterTimeout DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas
      DetectCacheInconsistency EnvFiles EtcdRangeStream ExcludeAdmissionWebhookVirtualResources
      ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
      HPAOptimizedSelectorStore HPAScaleToZero HugepageAwareEviction InOrderInformersBatchProcess
      InPlacePodLevelResourcesVerticalScaling KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
      KubeletInUserNamespace KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
      ListFromCacheSnapshot LoggingBetaOptions ManifestBasedAdmissionControlConfig
      MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge MaxUnavailableStatefulSet
      MemoryQoS MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NFTablesNetlink
      NativeHistograms NodeControllerLeaseCircuitBreaker NominatedNodeNameForExpectation OpenAPIEnums
      OpportunisticBatching PersistentVolumeClaimUnusedSinceTime PodDeletionCost PodLevelResources
      PodTopologyLabelsAdmission PodsAPI PortForwardWebsockets PreventStaticPodAPIReferences
      ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus
      ResourceHealthStatusMessage RestartAllContainersOnContainerExits RotateKubeletServerCertificate
      SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction
      SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet StaleControllerConsistencyHPA
      StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
      StatefulSetSemanticRevisionComparison StorageCapacityScoring StorageVersionHash StrictIPCIDRValidation
      StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
      TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions
      TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
      UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO VolumeLimitScaling WatchList WatchListClient
      WatchListCompression WindowsGracefulNodeShutdown`,
  },
  {
    stage: "Beta",
    default: false,
    locked: false,
    names: `
      AllBeta CoordinatedLeaderElection DRAWorkloadResourceClaims GenericWorkload
      LocalStorageCapacityIsolationFSQuotaMonitoring PodAndContainerStatsFromCRI PodLevelResourceManagers
      SchedulerAsyncAPICalls`,
  },
  {
    stage: "GA",
    default: true,
    locked: false,
    names: `
      AllowServiceExternalIPs ClusterTrustBundle ClusterTrustBundleProjection DRADeviceTaintRules
      DRADeviceTaints DisableAllocatorDualWrite ExecProbeTimeout PodCertificateRequest SELinuxMount
      StorageVersionMigrator`,
  },
  {
    stage: "GA",
    default: true,
    locked: true,
    names: `
      APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
      AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting
      CSIServiceAccountTokenSecrets ConsistentListFromCache CronJobsScheduledAnnotation
      CustomResourceFieldSelectors DRAAdminAccess DRAExtendedResource DRAPrioritizedList
      DRAResourceClaimDeviceStatus DeclarativeValidation DynamicResourceAllocation ElasticIndexedJob
      ExternalServiceAccountTokenSigner HPAConfigurableTolerance HostnameOverride ImageMaximumGCAge ImageVolume
      InOrderInformers InPlacePodVerticalScaling InPlacePodVerticalScalingInitContainers InformerResourceVersion
      JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI
      KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet
      KubeletTracing LogarithmicScaleDown MatchLabelKeysInPodAffinity MemoryManager MultiCIDRServiceAllocator
      MutableCSINodeAllocatableCount MutatingAdmissionPolicy NFTablesProxyMode NodeDeclaredFeatures
      NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OrderedNamespaceDeletion PLEGOnDemandRelist
      PodIndexLabel PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking
      PodReadyToStartContainersCondition PodSchedulingReadiness PreferSameTrafficDistribution ProcMountType
      RecoverVolumeExpansionFailure RecursiveReadOnlyMounts RelaxedDNSSearchValidation
      RelaxedEnvironmentVariableValidation RelaxedServiceNameValidation ResilientWatchCacheInitialization
      RetryGenerateName SELinuxChangePolicy SELinuxMountReadWriteOncePod SchedulerQueueingHints
      SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
      ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo ServiceTrafficDistribution
      SidecarContainers StatefulSetAutoDeletePVC StatefulSetStartOrdinal StreamingCollectionEncodingToJSON
      StreamingCollectionEncodingToProtobuf StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks
      StructuredAuthenticationConfiguration StructuredAuthorizationConfiguration TopologyAwareHints
      TopologyManagerPolicyOptions UserNamespacesSupport VolumeAttributesClass
      WatchCacheInitializationPostStartHook WinDSR WinOverlay`,
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
  {
    stage: "Deprecated",
    default: true,
    locked: false,
    names: "DisableNodeKubeProxyVersion KubeProxyIPVS StorageNamespaceIndex",
  },
];
